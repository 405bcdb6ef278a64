"""Bytes of many messages as one buffer, and vectorized searches in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.records import bounds
from penstock.wire.datagrams import Bytes, Ints, spans

Bools = npt.NDArray[np.bool_]

LOOKAHEAD = 8
"""Padding after search results, so that a short look ahead needs no bounds check."""
PADDING = 64
"""Zeros after the last message: the widest head that is read, and any look ahead, ends in them."""
SEPARATORS = b' \t\n\f\r"%:[]\\'
"""Bytes that ``positions`` finds."""
_BLOCK_BYTES = 1 << 16
_QUOTE, _PERCENT, _COLON, _OPENING_BRACKET, _EQUALS_SIGN = b'"%:[='


@dataclass(slots=True)
class Spans:
    """Byte ranges ``[begins, ends)``, one per row; empty for a missing field."""

    begins: Ints
    ends: Ints

    @classmethod
    def empty_at(cls, positions: Ints) -> Spans:
        """Return empty spans at these positions."""
        return cls(positions.copy(), positions.copy())

    @property
    def filled(self) -> Bools:
        """Mask of the rows with a non-empty span."""
        return self.ends > self.begins

    def assign(self, rows: Ints, begins: Ints, ends: Ints) -> None:
        """Set the spans of ``rows``."""
        self.begins[rows], self.ends[rows] = begins, ends


class Octets:
    """The bytes of ``messages`` (type binary, without nulls): message i is ``data[starts[i]:stops[i]]``.

    PADDING zeros follow the last message, so that looking ahead needs no bounds check.
    """

    def __init__(self, messages: pa.Array[Any]) -> None:
        data, starts, stops = raw_bytes(messages)
        self.data: Bytes = np.concatenate([data, np.zeros(PADDING, np.uint8)])
        self.starts, self.stops = starts, stops
        self._positions: dict[bytes, Ints] = {}

    def __len__(self) -> int:
        return len(self.starts)

    def positions(self, octets: bytes) -> Ints:
        """Return the sorted positions of any of the bytes ``octets``, padded with positions beyond every message."""
        if octets not in self._positions:  # cached: several fields search the same separators
            matches = self._separators == octets[0]
            for octet in octets[1:]:
                matches |= self._separators == octet
            self._positions[octets] = self._padded(self._separator_positions[matches])
        return self._positions[octets]

    @cached_property
    def equals_signs(self) -> Ints:
        """Sorted positions of all equals signs, padded like ``positions``: texts of fields have too many to be
        separators.
        """
        return self._padded(np.flatnonzero(self.data == _EQUALS_SIGN))

    def _padded(self, positions: Ints) -> Ints:
        return np.concatenate([positions, np.full(LOOKAHEAD, len(self.data) + 1)])

    @cached_property
    def _separator_positions(self) -> Ints:
        # Fast path: all separators are found in one pass over the bytes; each search then selects among few positions.
        # Blocks stay in the processor's cache: large arrays took three times as long.
        data = self.data[:-PADDING]
        blocks = [
            begin + _separators_of(data[begin : begin + _BLOCK_BYTES]) for begin in range(0, len(data), _BLOCK_BYTES)
        ]
        return np.concatenate(blocks) if blocks else np.zeros(0, np.int64)

    @cached_property
    def _separators(self) -> Bytes:
        return self.data[self._separator_positions]

    def next(self, octets: bytes, begins: Ints, stops: Ints) -> Ints:
        """Return the position of the first of ``octets`` from each begin on; the stop if there is none."""
        positions = self.positions(octets)
        return np.minimum(positions[np.searchsorted(positions, begins)], stops)

    def texts(self, begins: Ints, ends: Ints) -> pa.Array[Any]:
        """Return the bytes of each range as type binary, copied."""
        return spans(self.data, begins, ends)

    def head(self, begins: Ints, stops: Ints, width: int) -> Bytes:
        """Return ``width`` bytes from each begin on, one row each; 0 after its stop."""
        # Fast path: copies of adjacent bytes instead of single ones; only heads beyond their stop are cleared.
        # An array over the same bytes, because numpy's sliding_window_view takes 30 us a call.
        windows = np.ndarray((len(self.data) - width + 1, width), np.uint8, self.data, strides=(1, 1))
        matrix: Bytes = windows[np.minimum(begins, len(windows) - 1)]
        if len(short := np.flatnonzero(begins + width > stops)):
            is_beyond = np.arange(width) >= (stops[short] - begins[short])[:, None]
            matrix[short] *= ~is_beyond
        return matrix


def _separators_of(block: Bytes) -> Ints:
    is_separator = block <= ord(" ")
    for octet in (_QUOTE, _PERCENT, _COLON):
        is_separator |= block == octet
    is_separator |= block - np.uint8(_OPENING_BRACKET) < 3  # unsigned: smaller bytes wrap around
    return np.flatnonzero(is_separator)


def raw_bytes(messages: pa.Array[Any]) -> tuple[Bytes, Ints, Ints]:
    """Return the bytes of ``messages`` (type binary) without a copy, and the start and stop of each in them."""
    offsets = bounds(messages).astype(np.int64)
    buffer = messages.buffers()[2]
    data = np.zeros(0, np.uint8) if buffer is None else np.frombuffer(memoryview(buffer), np.uint8)
    return data[offsets[0] : offsets[-1]], offsets[:-1] - offsets[0], offsets[1:] - offsets[0]

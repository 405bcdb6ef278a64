"""Bytes of many messages as one buffer, and vectorized searches in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.records import bounds
from penstock.wire.datagrams import Bytes, Ints, spans

Bools = npt.NDArray[np.bool_]

LOOKAHEAD = 8
"""Padding after the buffer and after search results, so that a short look ahead needs no bounds check."""


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

    LOOKAHEAD zeros follow the last message, so that looking a few bytes ahead needs no bounds check.
    """

    def __init__(self, messages: pa.Array[Any]) -> None:
        offsets = bounds(messages)
        buffer = messages.buffers()[2]
        data = (
            np.frombuffer(memoryview(buffer), np.uint8)[: offsets[-1]] if buffer is not None else np.zeros(0, np.uint8)
        )
        self.data: Bytes = np.concatenate([data[offsets[0] :], np.zeros(LOOKAHEAD, np.uint8)])
        offsets = (offsets - offsets[0]).astype(np.int64)
        self.starts, self.stops = offsets[:-1], offsets[1:]
        self._positions: dict[bytes, Ints] = {}

    def __len__(self) -> int:
        return len(self.starts)

    def positions(self, octets: bytes) -> Ints:
        """Return the sorted positions of any of the bytes ``octets``, padded with positions beyond every message."""
        if octets not in self._positions:  # cached: several fields search the same separators
            matches = self.data == octets[0]
            for octet in octets[1:]:
                matches |= self.data == octet
            beyond = np.full(LOOKAHEAD, len(self.data) + 1)
            self._positions[octets] = np.concatenate([np.flatnonzero(matches[:-LOOKAHEAD]), beyond])
        return self._positions[octets]

    def next(self, octets: bytes, begins: Ints, stops: Ints) -> Ints:
        """Return the position of the first of ``octets`` from each begin on; the stop if there is none."""
        positions = self.positions(octets)
        return np.minimum(positions[np.searchsorted(positions, begins)], stops)

    def texts(self, begins: Ints, ends: Ints) -> pa.Array[Any]:
        """Return the bytes of each range as type binary, copied."""
        return spans(self.data, begins, ends)

    def head(self, begins: Ints, stops: Ints, width: int) -> Bytes:
        """Return ``width`` bytes from each begin on, one row each; 0 after its stop."""
        columns = begins[:, None] + np.arange(width)
        matrix: Bytes = self.data[np.minimum(columns, len(self.data) - 1)]
        matrix[columns >= stops[:, None]] = 0
        return matrix

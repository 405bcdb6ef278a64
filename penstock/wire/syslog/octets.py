"""The bytes of many messages and places in them."""

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
"""Bytes behind a place, and places behind a place, that may be asked for without care."""


@dataclass(slots=True)
class Spans:
    """n places ``[begins, ends)``; empty where there is nothing."""

    begins: Ints
    ends: Ints

    @classmethod
    def none(cls, at: Ints) -> Spans:
        """Nothing, at these places."""
        return cls(at.copy(), at.copy())

    @property
    def filled(self) -> Bools:
        """Where there is something."""
        return self.ends > self.begins

    def put(self, rows: Ints, begins: Ints, ends: Ints) -> None:
        """Set those of ``rows``."""
        self.begins[rows], self.ends[rows] = begins, ends


class Octets:
    """The bytes of ``messages`` (type binary, without nulls): message i is ``data[starts[i]:stops[i]]``.

    Behind the last one there are some zeros more, so that looking a few bytes ahead needs no care.
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
        self._places: dict[bytes, Ints] = {}

    def __len__(self) -> int:
        return len(self.starts)

    def places(self, of: bytes) -> Ints:
        """Where the bytes ``of`` stand, in order; behind them places that no message reaches."""
        if of not in self._places:
            found = self.data == of[0]
            for other in of[1:]:
                found |= self.data == other
            beyond = np.full(LOOKAHEAD, len(self.data) + 1)
            self._places[of] = np.concatenate([np.flatnonzero(found[:-LOOKAHEAD]), beyond])
        return self._places[of]

    def next(self, of: bytes, at: Ints, stops: Ints) -> Ints:
        """Where the first of the bytes ``of`` stands from each place on; where there is none, the stop."""
        places = self.places(of)
        return np.minimum(places[np.searchsorted(places, at)], stops)

    def texts(self, begins: Ints, ends: Ints) -> pa.Array[Any]:
        """What stands between these places, type binary, copied."""
        return spans(self.data, begins, ends)

    def head(self, at: Ints, stops: Ints, width: int) -> Bytes:
        """``width`` bytes from each place on, one place a row; 0 from its stop on."""
        columns = at[:, None] + np.arange(width)
        taken: Bytes = self.data[np.minimum(columns, len(self.data) - 1)]
        taken[columns >= stops[:, None]] = 0
        return taken

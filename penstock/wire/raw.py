"""The codec ``raw``: every datagram and every line is a message as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.records import body
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.decoded import Decoded
from penstock.wire.plog.statistics import Statistics


def whole_datagrams(datagrams: Datagrams, statistics: Statistics) -> tuple[pa.Array[Any], Ints, Counts]:
    """All datagrams but empty ones, their rows, and the counts."""
    filled = np.flatnonzero(datagrams.lengths > 0)
    statistics.udp_simple_messages += len(filled)
    counts = Counts({Name.TAKEN: len(datagrams), Name.EMPTY: len(datagrams) - len(filled)})
    counts.absorb(dict.fromkeys((Name.UNBOXED, Name.SEEN, Name.ACCEPTED), len(filled)))
    return datagrams.payloads(None if len(filled) == len(datagrams) else filled), filled, counts


def whole_lines(lines: pa.Array[Any], statistics: Statistics) -> Decoded:
    """Lines that are messages as they are; their counts are with the connection's."""
    statistics.udp_simple_messages += len(lines)
    return Decoded(body(lines), Counts(), rows=np.arange(len(lines)))


class RawDecoder:
    """No protocol at all: what comes is whole, and nothing waits for its rest. ``statistics`` has plog's keys.

    Other decoders of this kind are made of it, with a ``_decoded`` of their own.
    """

    open_messages = 0
    open_fragments = 0
    held_bytes = 0

    def __init__(self) -> None:
        self.statistics = Statistics()

    def decode(self, datagrams: Datagrams, now: float) -> Decoded:
        """One message per datagram that is not empty, and not refused."""
        return self._decoded(*whole_datagrams(datagrams, self.statistics))

    def decode_lines(self, lines: pa.Array[Any]) -> Decoded:
        """One message per line that is not refused; the counts say by how much the lines' own change."""
        self.statistics.udp_simple_messages += len(lines)
        return self._decoded(lines, np.arange(len(lines)), Counts())

    def expire(self, now: float) -> Counts:
        """Nothing waits here."""
        return Counts()

    def _decoded(self, payloads: pa.Array[Any], rows: Ints, counts: Counts) -> Decoded:
        return Decoded(body(payloads), counts, rows=rows)

"""The codec ``raw``: each datagram and each line is one message, unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.records import body
from penstock.wire.datagrams import Datagrams, Ints
from penstock.wire.decoded import Decoded
from penstock.wire.plog.statistics import Statistics


def nonempty_datagrams(datagrams: Datagrams, statistics: Statistics) -> tuple[pa.Array[Any], Ints, Counts]:
    """Return all datagrams except empty ones, their rows, and the counts."""
    filled = np.flatnonzero(datagrams.lengths > 0)
    statistics.udp_simple_messages += len(filled)
    counts = Counts({Name.TAKEN: len(datagrams), Name.EMPTY: len(datagrams) - len(filled)})
    counts.absorb(dict.fromkeys((Name.UNBOXED, Name.SEEN, Name.ACCEPTED), len(filled)))
    return datagrams.payloads(None if len(filled) == len(datagrams) else filled), filled, counts


def lines_as_messages(lines: pa.Array[Any], statistics: Statistics) -> Decoded:
    """Return lines as messages; the connection has counted them already."""
    statistics.udp_simple_messages += len(lines)
    return Decoded(body(lines), Counts(), rows=np.arange(len(lines)))


class RawDecoder:
    """Decoder without a protocol; no message waits for more data. ``statistics`` has plog's keys.

    Base class of the decoders of this kind, which override ``_decoded``.
    """

    open_messages = 0
    open_fragments = 0
    held_bytes = 0

    def __init__(self) -> None:
        self.statistics = Statistics()

    def decode(self, datagrams: Datagrams, now: float) -> Decoded:
        """Return one message per datagram that is neither empty nor refused."""
        return self._decoded(*nonempty_datagrams(datagrams, self.statistics))

    def decode_lines(self, lines: pa.Array[Any]) -> Decoded:
        """Return one message per line that is not refused; the counts are changes of the lines' counts."""
        self.statistics.udp_simple_messages += len(lines)
        return self._decoded(lines, np.arange(len(lines)), Counts())

    def expire(self, now: float) -> Counts:
        """Return no counts: no message waits."""
        return Counts()

    def _decoded(self, payloads: pa.Array[Any], rows: Ints, counts: Counts) -> Decoded:
        return Decoded(body(payloads), counts, rows=rows)

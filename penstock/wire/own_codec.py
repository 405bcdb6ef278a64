"""Codecs of one's own: a class with ``decode``, named by an entry point of the group ``penstock.codecs``.

It gets the payloads of a round as one column and gives back a batch with a row for each; datagrams, lines, limits and
counts are handled here.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.records import BODY, body
from penstock.wire.datagrams import Ints
from penstock.wire.decoded import Decoded
from penstock.wire.raw import RawDecoder

ROW_COST = 512
"""Bytes that a row may take beyond twice its payload."""
REFUSED = f"{Name.REFUSED}damaged"
_LOGGER = logging.getLogger(__name__)


class Codec(Protocol):
    """What a user writes. ``framing``, where it has one, is what ends a line: "lf" (the default) or "nul"."""

    def decode(self, payloads: pa.Array[Any]) -> pa.RecordBatch:
        """A batch (``records.annotated``) of one row for each of ``payloads`` (type binary); a null one is refused."""


class OwnDecoder(RawDecoder):
    """Decodes the rounds or lines of one listener by a codec of a user; ``statistics`` has plog's keys.

    A round on which the codec fails, or of which it makes too much, is kept as it came: a mistake in it loses nothing.
    """

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self._codec = codec

    def _decoded(self, payloads: pa.Array[Any], rows: Ints, counts: Counts) -> Decoded:
        found = self._made(payloads) if len(payloads) else body(payloads)
        if refused := found["payload"].null_count:
            kept = found["payload"].is_valid()
            counts.absorb({REFUSED: refused, Name.ACCEPTED: -refused})
            found, rows = found.filter(kept), rows[kept.to_numpy(zero_copy_only=False)]
        return Decoded(found, counts, rows=rows)

    def _made(self, payloads: pa.Array[Any]) -> pa.RecordBatch:
        try:
            found = self._codec.decode(payloads)
            found.validate(full=True)
        except Exception:
            _LOGGER.exception("the codec failed: %d messages are kept as they came", len(payloads))
            return body(payloads)
        if found.schema != BODY or found.num_rows != len(payloads):
            _LOGGER.error("the codec gave no batch of a row for each message: they are kept as they came")
        elif found.nbytes > 2 * payloads.nbytes + ROW_COST * len(payloads):
            _LOGGER.error("the codec made more of messages than a frame may hold: they are kept as they came")
        else:
            return found
        return body(payloads)

"""Users' codecs: a class with ``decode``, named by an entry point of the group ``penstock.codecs``.

The class receives the payloads of a round as one column and returns a batch with one row for each; datagrams, lines,
limits and counts are handled here.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.records import BODY, body
from penstock.wire.datagrams import Ints
from penstock.wire.decoded import NO_ROWS, Decoded
from penstock.wire.raw import RawDecoder

ROW_OVERHEAD_BYTES = 512
"""Limit: bytes that a row may have beyond twice its payload, so that a round still fits into a frame."""
REFUSED = f"{Name.REFUSED}damaged"
_LOGGER = logging.getLogger(__name__)


class Codec(Protocol):
    """Interface of a user's codec; the optional ``framing`` is the end of a line: "lf" (the default) or "nul"."""

    def decode(self, payloads: pa.Array[Any]) -> pa.RecordBatch:
        """Return a batch (``records.annotated``) with one row per payload (type binary); null refuses a message."""


class OwnDecoder(RawDecoder):
    """Decoder that runs a user's codec on one listener's rounds or lines; ``statistics`` has plog's keys.

    Invariant: a mistake in the codec loses no message; a round that it cannot decode is stored undecoded.
    """

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self._codec = codec

    def _decoded(self, payloads: pa.Array[Any], rows: Ints, counts: Counts) -> Decoded:
        batch, refused = self._run_codec(payloads) if len(payloads) else body(payloads), NO_ROWS
        if refused_count := batch["payload"].null_count:
            is_accepted = batch["payload"].is_valid()
            counts.absorb({REFUSED: refused_count, Name.ACCEPTED: -refused_count})
            mask = is_accepted.to_numpy(zero_copy_only=False)
            batch, rows, refused = batch.filter(is_accepted), rows[mask], rows[~mask]
        return Decoded(batch, counts, rows=rows, refused=refused)

    def _run_codec(self, payloads: pa.Array[Any]) -> pa.RecordBatch:
        try:
            batch = self._codec.decode(payloads)
            batch.validate(full=True)
        except Exception:
            _LOGGER.exception("codec failed; %d messages are stored undecoded", len(payloads))
            return body(payloads)
        if batch.schema != BODY or batch.num_rows != len(payloads):
            _LOGGER.error("codec returned no batch with one row per message; the messages are stored undecoded")
        elif batch.nbytes > 2 * payloads.nbytes + ROW_OVERHEAD_BYTES * len(payloads):
            _LOGGER.error("codec returned more bytes than a frame may hold; the messages are stored undecoded")
        else:
            return batch
        return body(payloads)

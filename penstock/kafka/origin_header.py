"""The header with a record's origin: the host and the listener that received the message, and the minute.

The handler ``kafka`` and promotion write it, and the landing counts rows by it. Anyone who may write a topic may set
any header, so a header that cannot be true is ignored: its record counts as one without a header.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import BUCKET_SECONDS
from penstock.qualified_names import relayed_name

ORIGIN_HEADER = "_penstock_origin"
"""Header with the record's origin: HOST/LISTENER@MINUTE, the start of the minute in seconds since the epoch."""
LOG_OFFSET_HEADER = "_penstock_offset"
"""Header of a record that promotion copied from a topic of the log: its offset there."""
NO_ORIGIN = "kafka"
"""Source of records without a header that can be true."""
OTHER_ORIGINS = "other/other"
"""Source of records beyond MAX_ORIGINS."""
MAX_ORIGINS = 20_000
"""Limit: origins in one task of a batch that are counted separately: 2,000 listeners for ten minutes."""
MAX_AGE_S, MAX_AHEAD_S = 7 * 86_400, 3_600
"""Limit: a minute this far from the time of its record, which has the same host's clock, cannot be true.

The time of a promoted record is that of its producer, or of a log that may have received it later by relays.
"""
_HOST = "[A-Za-z0-9_.-]{1,20}/"
_FORM = (
    rf"^([A-Za-z0-9_.-]{{1,32}}/[a-z0-9_.-]{{1,64}}|({_HOST}){{1,15}}[A-Za-z0-9_.-]{{1,30}}|({_HOST}){{2,15}})"
    r"@[0-9]{1,11}$"
)
"""The source of a handler, or of a relayed row: a host for each relay, of which 32 bytes are kept, so that the last
name may be a part of one or absent.
"""
_NONE, _OTHER = 0, 1
"""Positions of NO_ORIGIN and OTHER_ORIGINS among the sources."""
Seconds = npt.NDArray[np.int64]


def encode_origin(host: str, source: str, bucket: int) -> str:
    """Return the header's text for messages of a listener."""
    return f"{relayed_name(host, source)}@{bucket}"


class OriginReader:
    """The origins of records in one task's range, of which it remembers the distinct ones. One thread."""

    def __init__(self, limit: int = MAX_ORIGINS) -> None:
        self._limit = limit
        self._texts: list[bytes] = []
        self._sources, self._minutes = [NO_ORIGIN, OTHER_ORIGINS], [-1, -1]

    def read(self, headers: pa.ListArray[Any], seconds: Seconds) -> tuple[pa.Array[Any], Seconds]:
        """Return source and bucket (seconds since the epoch) of each record; ``seconds`` are the records' times."""
        own_buckets = seconds // BUCKET_SECONDS * BUCKET_SECONDS
        names = pc.struct_field(headers.flatten(), "key")
        is_origin = pc.equal(names, pa.scalar(ORIGIN_HEADER))
        # Fast path: records of other producers have no such header.
        if not pc.any(is_origin).as_py():
            return pa.repeat(NO_ORIGIN, len(headers)), own_buckets
        parents = pc.list_parent_indices(headers)
        rows = parents.filter(is_origin).to_numpy(zero_copy_only=False)
        texts = pc.struct_field(headers.flatten(), "value").filter(is_origin).dictionary_encode()
        origins = np.full(len(headers), _NONE)
        # The last header of a record counts; one without a value is not a header.
        codes = texts.indices.fill_null(len(texts.dictionary)).to_numpy(zero_copy_only=False)
        origins[rows] = np.append(self._origins_of(texts.dictionary), _NONE)[codes]
        minutes = np.array(self._minutes)[origins]
        is_false = (minutes >= 0) & ((minutes < seconds - MAX_AGE_S) | (minutes > seconds + MAX_AHEAD_S))
        is_promoted = pc.equal(names, pa.scalar(LOG_OFFSET_HEADER))
        is_false[parents.filter(is_promoted).to_numpy(zero_copy_only=False)] = False
        origins[is_false] = _NONE
        sources = pa.array(self._sources, pa.string()).take(pa.array(origins))
        return sources, np.where((minutes >= 0) & ~is_false, minutes, own_buckets)

    def _origins_of(self, texts: pa.Array[Any]) -> Seconds:
        """Return the number of the origin of each of some distinct headers."""
        is_valid = pc.match_substring_regex(texts, _FORM)
        known = pc.index_in(texts, pa.array(self._texts, pa.binary()))
        unseen = texts.filter(pc.and_(is_valid, known.is_null()))
        new_texts: list[Any] = unseen.slice(0, self._limit - len(self._texts)).to_pylist()
        for text in new_texts:
            source, _, minute = text.decode().partition("@")
            # A minute that is none is remembered, too, so that the limit bounds the work.
            is_minute = int(minute) % BUCKET_SECONDS == 0
            self._texts.append(text)
            self._sources.append(source if is_minute else NO_ORIGIN)
            self._minutes.append(int(minute) if is_minute else -1)
        known = pc.index_in(texts, pa.array(self._texts, pa.binary()))
        numbers = pc.add(known.cast(pa.int64()), 2).fill_null(_OTHER).to_numpy(zero_copy_only=False)
        return np.where(is_valid.to_numpy(zero_copy_only=False), numbers, _NONE)

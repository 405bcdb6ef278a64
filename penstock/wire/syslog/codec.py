"""The codec ``syslog``: header fields as annotations, messages unchanged.

Invariant: a message is never refused for its header; only compressed and empty messages are left out, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name
from penstock.records import annotation_maps, body, bounds, from_numpy
from penstock.wire.datagrams import Ints
from penstock.wire.decoded import Decoded
from penstock.wire.growth import FIELDS
from penstock.wire.raw import RawDecoder
from penstock.wire.sender_text import strings
from penstock.wire.syslog.framing import compressed_rows, without_counts, without_ends
from penstock.wire.syslog.headers import FACILITIES, SEVERITIES, Headers
from penstock.wire.syslog.octets import Bools
from penstock.wire.syslog.structured_data import Parameters, read_parameters
from penstock.wire.syslog.times import Times, read_times

COMPRESSED = f"{Name.REFUSED}compressed"
_UTC_NAMES = pa.array([b"UTC", b"GMT"], pa.binary())


class SyslogDecoder(RawDecoder):
    """Decoder of syslog datagrams or lines to messages with annotations. ``statistics`` has plog's keys.

    ``zone``: zone of timestamps without one (None: this machine's); ``clock``: seconds since the epoch, which decide
    the year of timestamps without one; ``is_local``: as for ``Headers``.
    """

    def __init__(
        self, zone: tzinfo | None = UTC, clock: Callable[[], float] = time.time, *, is_local: bool = False
    ) -> None:
        super().__init__()
        self._zone, self._clock, self._is_local = zone, clock, is_local

    def _decoded(self, payloads: pa.Array[Any], rows: Ints, counts: Counts) -> Decoded:
        if Name.TAKEN in counts:
            payloads = without_counts(payloads)
        if (is_compressed := compressed_rows(payloads)).any():
            counts.absorb({COMPRESSED: int(is_compressed.sum()), Name.ACCEPTED: -int(is_compressed.sum())})
            payloads, rows = payloads.filter(from_numpy(~is_compressed)), rows[~is_compressed]
        messages = without_ends(payloads)
        if not (is_filled := np.diff(bounds(messages)) > 0).all():
            counts.absorb(_empty_changes(counts, len(messages) - int(is_filled.sum())))
            messages, rows = messages.filter(from_numpy(is_filled)), rows[is_filled]
        received = np.array([self._clock() * 1_000_000], np.int64)
        annotations = build_annotations(messages, received, self._zone, is_local=self._is_local)
        return Decoded(body(messages, annotations=annotations), counts, rows=rows)


def _empty_changes(counts: Counts, empty: int) -> dict[str, int]:
    """Return the changes of counts for ``empty`` datagrams or lines that contain only ends."""
    message_count_name, empty_count_name = (
        (Name.UNBOXED, Name.EMPTY) if Name.TAKEN in counts else (Name.LINE_MESSAGE, Name.LINE_EMPTY)
    )
    return {message_count_name: -empty, empty_count_name: empty, Name.SEEN: -empty, Name.ACCEPTED: -empty}


def build_annotations(
    messages: pa.Array[Any], received: Ints, zone: tzinfo | None, *, is_local: bool = False
) -> pa.Array[Any]:
    """Return the header fields of ``messages`` (type binary) as maps: facility, severity, FIELDS, the parameters.

    ``received``: microseconds since the epoch, one for all or one per message; ``zone``: zone of timestamps without
    one.
    """
    header = Headers(messages, is_local=is_local)
    parameters = read_parameters(header.octets, header.fields["structured_data"])
    columns = [*priority_names(header), _formatted_times(header, received, zone)]
    present = [np.ones(len(messages), np.bool_)] * 2
    for name in FIELDS:
        field = header.fields[name]
        if name != "timestamp":
            columns.append(strings(header.octets.texts(field.begins, field.ends)))
        present.append(field.filled)
    if parameters is not None:
        present[-1] = parameters.is_unsplit
    return build_maps(("facility", "severity", *FIELDS), columns, np.stack(present, axis=1), parameters)


def _formatted_times(header: Headers, received: Ints, zone: tzinfo | None) -> pa.Array[Any]:
    """Return header times as RFC 3339, converted to UTC unless they have that form; unreadable ones unchanged."""
    timestamps = header.fields["timestamp"]
    texts = header.octets.texts(timestamps.begins, timestamps.ends)
    times = parse_times(header, received, zone)
    if not len(rows := np.flatnonzero(times.is_valid & ~times.is_rfc3339)):
        return strings(texts)
    # Fast path: a batch of one form of timestamps is written at once, without a merge.
    if len(rows) == len(texts):
        return strings(times.format_rfc3339(rows))
    order = np.arange(len(texts))
    order[rows] = len(texts) + np.arange(len(rows))
    return strings(pa.concat_arrays([texts, times.format_rfc3339(rows)]).take(from_numpy(order)))


def parse_times(header: Headers, received: Ints, zone: tzinfo | None) -> Times:
    """Return the parsed times of the headers."""
    zones, in_utc = header.fields["zone"], None
    if zones.filled.any():
        in_utc = pc.is_in(header.column("zone"), _UTC_NAMES).to_numpy(zero_copy_only=False)
    return read_times(header.octets, header.fields["timestamp"], received, zone, in_utc)


def priority_names(header: Headers) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the names of facilities and severities."""
    facility = pa.array(FACILITIES).take(from_numpy(header.priorities >> 3))
    return facility, pa.array(SEVERITIES).take(from_numpy(header.priorities & 7))


def build_maps(
    names: Sequence[str], columns: Sequence[pa.Array[Any]], present: Bools, parameters: Parameters | None
) -> pa.Array[Any]:
    """Return a map per row of the columns ``present`` in it (shape rows x names), followed by its parameters."""
    rows, width = present.shape
    indices = np.arange(rows * width).reshape(width, rows).T[present]
    name_indices, counts = indices // max(rows, 1), present.sum(axis=1)
    # All maps are built by index arithmetic and two gathers: no Python statement per message or field.
    labels: pa.Array[Any] = pa.array(names)
    texts = pa.concat_arrays(list(columns))
    if parameters is not None:
        ends, added = np.cumsum(counts), np.diff(parameters.offsets)
        insert_at = np.repeat(ends, added)
        indices = np.insert(indices, insert_at, rows * width + np.arange(len(insert_at)))
        name_indices = np.insert(name_indices, insert_at, width + np.arange(len(insert_at)))
        counts = counts + added
        labels, texts = pa.concat_arrays([labels, parameters.names]), pa.concat_arrays([texts, parameters.values])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return annotation_maps(offsets, labels.take(from_numpy(name_indices)), texts.take(from_numpy(indices)))

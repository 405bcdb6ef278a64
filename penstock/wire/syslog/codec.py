"""The codec ``syslog``: datagrams or lines to messages, what their headers say in annotations, the messages whole."""

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
from penstock.wire.syslog.framing import compressed, without_counts, without_ends
from penstock.wire.syslog.headers import FACILITIES, SEVERITIES, Headers
from penstock.wire.syslog.octets import Bools
from penstock.wire.syslog.structured_data import Parameters, read_parameters
from penstock.wire.syslog.times import Times, read_times

COMPRESSED = f"{Name.REFUSED}compressed"
_UTC_NAMES = pa.array([b"UTC", b"GMT"], pa.binary())


class SyslogDecoder(RawDecoder):
    """Datagrams or lines of syslog to messages with annotations. ``statistics`` has plog's keys.

    ``zone``: of times that name none (None: this machine's); ``clock``: seconds since the epoch, from which a time
    without a year gets its own.
    """

    def __init__(self, zone: tzinfo | None = UTC, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._zone, self._clock = zone, clock

    def _decoded(self, payloads: pa.Array[Any], rows: Ints, counts: Counts) -> Decoded:
        if Name.TAKEN in counts:
            payloads = without_counts(payloads)
        if (unread := compressed(payloads)).any():
            counts.absorb({COMPRESSED: int(unread.sum()), Name.ACCEPTED: -int(unread.sum())})
            payloads, rows = payloads.filter(from_numpy(~unread)), rows[~unread]
        messages = without_ends(payloads)
        if not (filled := np.diff(bounds(messages)) > 0).all():
            counts.absorb(_without_empty(counts, len(messages) - int(filled.sum())))
            messages, rows = messages.filter(from_numpy(filled)), rows[filled]
        received = np.array([self._clock() * 1_000_000], np.int64)
        return Decoded(body(messages, annotations=annotations_of(messages, received, self._zone)), counts, rows=rows)


def _without_empty(counts: Counts, empty: int) -> dict[str, int]:
    """By how much the counts change for ``empty`` datagrams or lines that are nothing but ends."""
    whole, nothing = (Name.UNBOXED, Name.EMPTY) if Name.TAKEN in counts else (Name.LINE_MESSAGE, Name.LINE_EMPTY)
    return {whole: -empty, nothing: empty, Name.SEEN: -empty, Name.ACCEPTED: -empty}


def annotations_of(messages: pa.Array[Any], received: Ints, zone: tzinfo | None) -> pa.Array[Any]:
    """What the headers of ``messages`` (type binary) say, as maps: facility, severity, FIELDS, the parameters.

    ``received``: microseconds since the epoch, one or one a message; ``zone``: of times that name none.
    """
    header = Headers(messages)
    parameters = read_parameters(header.octets, header.fields["structured_data"])
    columns = [*names_of(header), _times(header, received, zone)]
    said = [np.ones(len(messages), np.bool_)] * 2
    for name in FIELDS:
        field = header.fields[name]
        if name != "timestamp":
            columns.append(strings(header.octets.texts(field.begins, field.ends)))
        said.append(field.filled)
    if parameters is not None:
        said[-1] = parameters.whole
    return maps_of(("facility", "severity", *FIELDS), columns, np.stack(said, axis=1), parameters)


def _times(header: Headers, received: Ints, zone: tzinfo | None) -> pa.Array[Any]:
    """The times of headers as RFC 3339, in UTC where they are not of that form; as they are where they are no times."""
    places = header.fields["timestamp"]
    said = header.octets.texts(places.begins, places.ends)
    times = times_of(header, received, zone)
    if not len(rows := np.flatnonzero(times.known & ~times.is_rfc3339)):
        return strings(said)
    if len(rows) == len(said):
        return strings(times.written(rows))
    order = np.arange(len(said))
    order[rows] = len(said) + np.arange(len(rows))
    return strings(pa.concat_arrays([said, times.written(rows)]).take(from_numpy(order)))


def times_of(header: Headers, received: Ints, zone: tzinfo | None) -> Times:
    """The times that headers say, where they are some."""
    zones, in_utc = header.fields["zone"], None
    if zones.filled.any():
        in_utc = pc.is_in(header.said("zone"), _UTC_NAMES).to_numpy(zero_copy_only=False)
    return read_times(header.octets, header.fields["timestamp"], received, zone, in_utc)


def names_of(header: Headers) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Facilities and severities by their names."""
    facility = pa.array(FACILITIES).take(from_numpy(header.priorities >> 3))
    return facility, pa.array(SEVERITIES).take(from_numpy(header.priorities & 7))


def maps_of(
    names: Sequence[str], columns: Sequence[pa.Array[Any]], said: Bools, parameters: Parameters | None
) -> pa.Array[Any]:
    """For each row those columns that are ``said`` (one row a row, one column a name), then its parameters."""
    rows, width = said.shape
    at = np.arange(rows * width).reshape(width, rows).T[said]
    of_name, counts = at // max(rows, 1), said.sum(axis=1)
    labels: pa.Array[Any] = pa.array(names)
    texts = pa.concat_arrays(list(columns))
    if parameters is not None:
        ends, added = np.cumsum(counts), np.diff(parameters.offsets)
        behind = np.repeat(ends, added)
        at = np.insert(at, behind, rows * width + np.arange(len(behind)))
        of_name = np.insert(of_name, behind, width + np.arange(len(behind)))
        counts = counts + added
        labels, texts = pa.concat_arrays([labels, parameters.names]), pa.concat_arrays([texts, parameters.values])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return annotation_maps(offsets, labels.take(from_numpy(of_name)), texts.take(from_numpy(at)))

"""The codec ``syslog``: header fields as annotations, messages unchanged.

Invariant: a message is never refused for its header; only compressed and empty messages are left out, and counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.counts import Counts, Name
from penstock.records import ANNOTATIONS, annotation_maps, binary_array, body, bounds, from_numpy, values_of
from penstock.wire.datagrams import Ints
from penstock.wire.decoded import NO_ROWS, Decoded
from penstock.wire.growth import FIELDS
from penstock.wire.raw import RawDecoder
from penstock.wire.sender_text import strings
from penstock.wire.syslog.few_messages import MAX_FEW_MESSAGES, read_few
from penstock.wire.syslog.framing import compressed_rows, without_counts, without_ends
from penstock.wire.syslog.headers import FACILITIES, SEVERITIES, Headers
from penstock.wire.syslog.octets import PADDING, Bools, Octets, Spans
from penstock.wire.syslog.structured_data import Parameters, read_parameters
from penstock.wire.syslog.times import Times, format_time, read_offsets, read_times

COMPRESSED = f"{Name.REFUSED}compressed"
MIN_RUN = 3
"""Rows of an average run of equal timestamps from which each run is parsed once."""
MAX_FEW_TIMES = 512
"""Limit of the fast path: about 800 times cost as much one by one as in columns."""


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
        refused = NO_ROWS
        if (is_compressed := compressed_rows(payloads)).any():
            refused = rows[is_compressed]
            counts.absorb({COMPRESSED: int(is_compressed.sum()), Name.ACCEPTED: -int(is_compressed.sum())})
            payloads, rows = payloads.filter(from_numpy(~is_compressed)), rows[~is_compressed]
        messages = without_ends(payloads)
        if not (is_filled := np.diff(bounds(messages)) > 0).all():
            counts.absorb(_empty_changes(counts, len(messages) - int(is_filled.sum())))
            messages, rows = messages.filter(from_numpy(is_filled)), rows[is_filled]
        received = np.array([self._clock() * 1_000_000], np.int64)
        annotations = build_annotations(messages, received, self._zone, is_local=self._is_local)
        return Decoded(body(messages, annotations=annotations), counts, rows=rows, refused=refused)


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
    if len(messages) <= MAX_FEW_MESSAGES and len(received) == 1:
        rows = read_few(values_of(messages), int(received[0]), zone, is_local=is_local)
        if rows is not None:
            return pa.array(rows, ANNOTATIONS)
    return annotations_in_columns(messages, received, zone, is_local=is_local)


def annotations_in_columns(
    messages: pa.Array[Any], received: Ints, zone: tzinfo | None, *, is_local: bool = False
) -> pa.Array[Any]:
    """Return the same as ``build_annotations``, however few messages there are."""
    header = Headers(messages, is_local=is_local)
    parameters = read_parameters(header.octets, header.fields["structured_data"])
    present = np.ones((len(messages), 2 + len(FIELDS)), np.bool_)
    for index, name in enumerate(FIELDS, 2):
        present[:, index] = header.fields[name].filled
    if parameters is not None:
        present[:, -1] = parameters.is_unsplit
    times = _formatted_times(header, received, zone)
    labels = ("facility", "severity", *FIELDS)
    if (fields := _adjacent_fields(header)) is not None:
        # The gaps between fields are not copied, so only the taken texts need to be UTF-8.
        with contextlib.suppress(pa.ArrowInvalid):
            return build_maps(labels, *_header_texts(header, times.cast(pa.binary()), fields), present, parameters)
    return build_maps(labels, *_header_texts(header, times, _separate_fields(header)), present, parameters)


def _header_texts(
    header: Headers, times: pa.Array[Any], fields: tuple[pa.Array[Any], Ints]
) -> tuple[pa.Array[Any], Ints]:
    """Return texts and, per row, the indices of its facility, its severity and its FIELDS in them."""
    texts, field_indices = fields
    names = pa.array((*FACILITIES, *SEVERITIES), texts.type)
    indices = np.empty((len(header.octets), 2 + len(FIELDS)), np.int64)
    indices[:, 0], indices[:, 1] = header.priorities >> 3, len(FACILITIES) + (header.priorities & 7)
    indices[:, 2] = len(names) + np.arange(len(indices))
    indices[:, 3:] = len(names) + len(times) + field_indices
    return pa.concat_arrays([names, times, texts]), indices


def _adjacent_fields(header: Headers) -> tuple[pa.Array[Any], Ints] | None:
    """Return fields after the timestamp as entries of one binary array over the messages, without a copy, and their
    indices (shape rows x fields); None where a field precedes another of smaller index, as in Cisco's messages.
    """
    fields = [header.fields[name] for name in FIELDS[1:]]
    bounds_of_fields = np.empty((len(header.octets), 2 * len(fields)), np.int64)
    for index, field in enumerate(fields):
        bounds_of_fields[:, 2 * index], bounds_of_fields[:, 2 * index + 1] = field.begins, field.ends
    # A missing field moves to the end of the field before.
    offsets = np.maximum.accumulate(bounds_of_fields, axis=1)
    moved = (offsets != bounds_of_fields)[:, 1::2] & np.stack([field.filled for field in fields], axis=1)
    if moved.any() or not len(offsets):
        return None
    entries = binary_array(offsets.astype(np.int32).ravel(), header.octets.data)
    return entries, np.arange(0, offsets.size, 2).reshape(len(offsets), len(fields))


def _separate_fields(header: Headers) -> tuple[pa.Array[Any], Ints]:
    """Return fields after the timestamp as strings, and their indices (shape rows x fields)."""
    fields = [header.fields[name] for name in FIELDS[1:]]
    texts = [strings(header.octets.texts(field.begins, field.ends)) for field in fields]
    rows = len(header.octets)
    return pa.concat_arrays(texts), np.arange(rows * len(fields)).reshape(len(fields), rows).T


def _formatted_times(header: Headers, received: Ints, zone: tzinfo | None) -> pa.Array[Any]:
    """Return header times as RFC 3339, converted to UTC unless they have that form; unreadable ones unchanged."""
    timestamps = header.fields["timestamp"]
    if (runs := _runs_of_texts(header, received)) is not None:
        firsts, run_of_row = runs
        timestamps = Spans(timestamps.begins[firsts], timestamps.ends[firsts])
        texts = _format_few(header.octets, timestamps, int(received[0]), zone)
        if texts is None:
            texts = _rfc3339(header.octets, timestamps, read_times(header.octets, timestamps, received, zone))
        return texts.take(from_numpy(run_of_row))
    return _rfc3339(header.octets, timestamps, parse_times(header, received, zone))


def _format_few(octets: Octets, timestamps: Spans, received: int, zone: tzinfo | None) -> pa.Array[Any] | None:
    """Return the times as RFC 3339; None if they are many, or one has another form than most programs send."""
    if len(timestamps.begins) > MAX_FEW_TIMES:
        return None
    texts = values_of(octets.texts(timestamps.begins, timestamps.ends))
    times = [format_time(text, received, zone) for text in texts]
    return None if None in times else pa.array(times, pa.string())


def _runs_of_texts(header: Headers, received: Ints) -> tuple[Ints, Ints] | None:
    """Return the first rows of runs of equal timestamps, and the run of each row; None if runs are short.

    Fast path: most messages have the second of the message before, and a time costs more than a comparison.
    """
    spans = header.fields["timestamp"]
    lengths = spans.ends - spans.begins
    if not len(lengths) or len(received) > 1 or not 0 < (width := int(lengths[0])) <= PADDING:
        return None
    if (lengths != width).any() or header.fields["zone"].filled.any():
        return None
    texts = np.ascontiguousarray(header.octets.head(spans.begins, spans.ends, width)).view(f"S{width}")[:, 0]
    is_first = np.concatenate([[True], texts[1:] != texts[:-1]])
    firsts = np.flatnonzero(is_first)
    return (firsts, np.cumsum(is_first) - 1) if len(firsts) * MIN_RUN <= len(lengths) else None


def _rfc3339(octets: Octets, timestamps: Spans, times: Times) -> pa.Array[Any]:
    texts = octets.texts(timestamps.begins, timestamps.ends)
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
    has_zones = header.fields["zone"].filled.any()
    offsets = read_offsets(header.column("zone"), received, zone) if has_zones else None
    return read_times(header.octets, header.fields["timestamp"], received, zone, offsets)


def priority_names(header: Headers) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the names of facilities and severities."""
    facility = pa.array(FACILITIES).take(from_numpy(header.priorities >> 3))
    return facility, pa.array(SEVERITIES).take(from_numpy(header.priorities & 7))


def build_maps(
    names: Sequence[str], texts: pa.Array[Any], indices: Ints, present: Bools, parameters: Parameters | None
) -> pa.Array[Any]:
    """Return a map per row: names whose text is ``present``, at ``indices`` of ``texts`` (all of shape rows x names;
    texts binary or string), then the row's parameters. Raises ArrowInvalid for texts that are not UTF-8.
    """
    # All maps are built by index arithmetic and two gathers: no Python statement per message or field.
    name_indices, text_indices = np.nonzero(present)[1], indices[present]
    counts = present.sum(axis=1)
    labels: pa.Array[Any] = pa.array(names)
    if parameters is not None:
        added = np.diff(parameters.offsets)
        # Entries of a row move behind the parameters of the rows before; its parameters follow its own entries.
        own = np.arange(len(text_indices)) + np.repeat(parameters.offsets[:-1], counts)
        appended = np.arange(len(parameters.names)) + np.repeat(np.cumsum(counts), added)
        name_indices = _merge(own, name_indices, appended, len(labels))
        text_indices = _merge(own, text_indices, appended, len(texts))
        counts = counts + added
        labels = pa.concat_arrays([labels, parameters.names])
        texts = pa.concat_arrays([texts, parameters.values.cast(texts.type)])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    values = texts.take(from_numpy(text_indices)).cast(pa.string())
    return annotation_maps(offsets, labels.take(from_numpy(name_indices)), values)


def _merge(own: Ints, indices: Ints, appended: Ints, base: int) -> Ints:
    """Return ``indices`` at positions ``own``, and ascending numbers from ``base`` at positions ``appended``."""
    merged = np.empty(len(own) + len(appended), np.int64)
    merged[own] = indices
    merged[appended] = base + np.arange(len(appended))
    return merged

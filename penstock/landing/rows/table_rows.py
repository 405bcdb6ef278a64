"""Convert messages to rows of the table: event, syslog, message, or quarantined with a reason.

Invariant: each message becomes exactly one row, of one kind; what is not a valid event stays as a message or in
quarantine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.landing.event_rules import (
    DOCUMENT_CODECS,
    FOREIGN_CODECS,
    ID_ANNOTATIONS,
    MAX_TIMESTAMP,
    MAX_UUID_BYTES,
    MIN_TIMESTAMP,
    NOT_MEANT_AS_EVENT,
    MessageKind,
)
from penstock.landing.rows.engine import compute, pc
from penstock.landing.rows.json_events import DOCUMENT_TIME, EventRules, event_columns
from penstock.landing.rows.unique_annotations import with_unique_annotations
from penstock.landing.table_schema import FILE_SCHEMA, FOREIGN_COLUMNS, MICROS, SYSLOG_COLUMNS
from penstock.wire.syslog.columns import syslog_messages

RFC3339 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
_RARE_RFC3339 = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:([0-5][0-9]|60)(\.[0-9]+)?([Zz]|[+-][0-9]{2}:?[0-9]{2})$"
)
"""Times that DuckDB does not read: in a leap second, with more than nine digits, in small letters."""
_RARE_MICROS = """
    epoch_us(try_cast(upper(text[:17]) || replace(text[18:19], '60', '59')
        || regexp_replace(upper(text[20:]), '([.][0-9]{6})[0-9]+', '\\1') AS TIMESTAMPTZ))
    + if(text[18:19] = '60', 1000000, 0)
"""
_PARTIAL_DATES = ((r"^(\d{4})$", r"\1-01"), (r"^(\d{4}-\d\d)$", r"\1-01"), (r"^(\d{4}-\d\d-\d\d)$", r"\1T00:00:00"))
"""Patterns of a year, a month and a day, each with the text that the next one, or RFC 3339, completes."""
Columns: TypeAlias = "dict[str, pa.Array[Any]]"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for events, and whether valid events keep their raw payload (applied by the caller of
    ``table_rows``).
    """

    events: EventRules = field(default_factory=EventRules)
    keep_payload: bool = True


def table_rows(
    batch: pa.RecordBatch, rules: Rules, landed_at: int | None
) -> Iterator[tuple[MessageKind, pa.RecordBatch]]:
    """Yield the rows (FILE_SCHEMA) of messages (``from_kafka.rows.ROW``) by kind.

    ``landed_at`` is in microseconds since the epoch, None for rows that have not landed.
    """
    batch = batch.append_column("landed_at", pa.repeat(pa.scalar(landed_at, pa.int64()), batch.num_rows).cast(MICROS))
    is_syslog = has_codec(batch, MessageKind.SYSLOG)
    is_object_like = pc.fill_null(pc.starts_with(batch["payload"], "{"), pa.scalar(False))
    is_event = pc.and_not(is_object_like, is_syslog)
    if part := _select(batch, is_event):
        yield from _event_rows(part, rules)
    if part := _select(batch, is_syslog):
        yield MessageKind.SYSLOG, _to_file_schema(part, _syslog_columns(part))
    if part := _select(batch, pc.invert(pc.or_(is_event, is_syslog))):
        yield MessageKind.MESSAGE, _message_rows(part)


def without_payload(kind: MessageKind, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Remove the payload from rows (FILE_SCHEMA) of events; return rows of other kinds unchanged."""
    if kind is not MessageKind.EVENT:
        return rows
    index = FILE_SCHEMA.get_field_index("payload")
    return rows.set_column(index, FILE_SCHEMA.field(index), pa.nulls(rows.num_rows, pa.binary()))


def has_codec(batch: pa.RecordBatch, *codecs: str) -> pa.Array[Any]:
    """Return a mask of the rows with one of these codecs; never null."""
    mask: pa.Array[Any] = pc.is_in(batch["codec"], pa.array(codecs))
    return mask


def protocol_uuids(batch: pa.RecordBatch) -> pa.Array[Any]:
    """Return the message ids of protocols that have one (columns ``codec`` and ``annotations``), else null."""
    uuids: pa.Array[Any] = pa.nulls(batch.num_rows, pa.string())
    for codec, name in ID_ANNOTATIONS.items():
        is_of_codec = has_codec(batch, codec)
        if pc.any(is_of_codec).as_py():
            annotation = pc.map_lookup(batch["annotations"], pa.scalar(name), "last")
            size = pc.binary_length(annotation)
            has_valid_length = pc.and_(pc.greater(size, pa.scalar(0)), pc.less_equal(size, pa.scalar(MAX_UUID_BYTES)))
            uuids = pc.if_else(
                pc.and_(is_of_codec, pc.fill_null(has_valid_length, pa.scalar(False))), annotation, uuids
            )
    return uuids


def _select(batch: pa.RecordBatch, mask: pa.Array[Any]) -> pa.RecordBatch | None:
    """Return the rows of a mask, or None if there are none."""
    count = int(pc.sum(mask).as_py() or 0)
    # Fast path: batches of one kind, the usual case, are not copied.
    if count == batch.num_rows:
        return batch if count else None
    return batch.filter(mask) if count else None


def _event_rows(batch: pa.RecordBatch, rules: Rules) -> Iterator[tuple[MessageKind, pa.RecordBatch]]:
    is_document = has_codec(batch, *DOCUMENT_CODECS)
    columns = event_columns(batch["payload"], rules.events, has_document_time=bool(pc.any(is_document).as_py()))
    if DOCUMENT_TIME in columns:
        batch = batch.append_column(DOCUMENT_TIME, pc.if_else(is_document, columns.pop(DOCUMENT_TIME), None))
    rows = _to_file_schema(batch, columns)
    is_valid = pc.is_null(columns["reason"])
    if part := _select(rows, is_valid):
        yield MessageKind.EVENT, part
    is_not_meant_as_event = pc.is_in(columns["reason"], pa.array([reason.value for reason in NOT_MEANT_AS_EVENT]))
    # Senders of other protocols (GELF, OTLP, ...) send JSON that was never meant as an event: it is a message.
    is_foreign_message = pc.and_(has_codec(batch, *FOREIGN_CODECS), is_not_meant_as_event)
    if part := _select(rows, pc.invert(pc.or_(is_valid, is_foreign_message))):
        yield MessageKind.QUARANTINE, part
    if part := _select(batch, is_foreign_message):
        yield MessageKind.MESSAGE, _message_rows(part)


def _to_file_schema(batch: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    """Return FILE_SCHEMA rows from ``columns``, else the batch's columns, else nulls."""
    batch_columns = set(batch.schema.names)

    def column(field: pa.Field[Any]) -> pa.Array[Any]:
        if field.name in columns or field.name in batch_columns:
            source = columns[field.name] if field.name in columns else batch[field.name]
        else:
            source = pa.nulls(batch.num_rows, field.type)
        typed: pa.Array[Any] = source if source.type.equals(field.type) else source.cast(field.type)
        return typed

    rows = pa.RecordBatch.from_arrays([column(field) for field in FILE_SCHEMA], schema=FILE_SCHEMA)
    # Order: after the columns, which take the last of several annotations of one name, as duplicates and proofs do.
    return with_unique_annotations(rows)


def _syslog_columns(batch: pa.RecordBatch) -> Columns:
    annotations = batch["annotations"]

    def annotation(name: str) -> pa.Array[Any]:
        texts: pa.Array[Any] = pc.map_lookup(annotations, pa.scalar(name), "last")
        return texts

    columns = {column: annotation(name) for column, name in SYSLOG_COLUMNS.items()}
    message = syslog_messages(batch["payload"].fill_null(b""))
    return {
        **columns,
        "message": message,
        "host": annotation("hostname"),
        "event_time": _times(annotation("timestamp")),
    }


def _message_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of messages, with annotations of foreign protocols as columns."""
    is_foreign = has_codec(batch, *FOREIGN_CODECS)
    if not pc.any(is_foreign).as_py():
        return _to_file_schema(batch, {})

    def annotation(name: str) -> pa.Array[Any]:
        texts: pa.Array[Any] = pc.map_lookup(batch["annotations"], pa.scalar(name), "last")
        foreign_texts: pa.Array[Any] = pc.if_else(is_foreign, texts, pa.scalar(None, pa.string()))
        return foreign_texts

    columns = {column: annotation(name) for column, name in FOREIGN_COLUMNS.items()}
    columns["uuid"] = protocol_uuids(batch)
    host: pa.Array[Any] = pc.coalesce(annotation("resource.host.name"), annotation("host"))
    # GELF's time is ``timestamp``; a field ``time`` is one of its sender's.
    own_times = pc.if_else(has_codec(batch, "gelf"), annotation("timestamp"), annotation("time"))
    event_time = _either_times(own_times)
    # OTLP: where the source has no clock, or one that makes no sense, the time is when its message was observed.
    for name in ("time", "timestamp", "observed_time"):
        # Fast path: usually each message has a time by now, and nothing is converted.
        if event_time.null_count:
            texts = pc.if_else(pc.is_null(event_time), annotation(name), pa.scalar(None, pa.string()))
            if texts.null_count < len(texts):
                event_time = pc.coalesce(event_time, _either_times(texts))
    if DOCUMENT_TIME in batch.schema.names:
        event_time = pc.coalesce(event_time, _document_times(batch[DOCUMENT_TIME]))
    return _to_file_schema(batch, {**columns, "host": host, "event_time": event_time})


def _document_times(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Convert the ``@timestamp`` of documents to times, as Elasticsearch: without a zone UTC, a day from its begin."""
    times = _times(texts)
    # Fast path: usually each document has a time of RFC 3339, and the others are not tried.
    if times.null_count > texts.null_count:
        untimed_texts = pc.if_else(pc.is_null(times), texts, pa.scalar(None, pa.string()))
        completed: Any = untimed_texts
        for pattern, replacement in _PARTIAL_DATES:
            completed = pc.replace_substring_regex(completed, pattern, replacement)
        with_zone = pc.binary_join_element_wise(completed, pa.scalar("Z"), pa.scalar(""))
        times = pc.coalesce(times, _times(with_zone), _epoch_times(untimed_texts))
    return times


def _either_times(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Convert numbers since the epoch, and texts of RFC 3339, to times; null for others."""
    times: pa.Array[Any] = pc.coalesce(_epoch_times(texts), _times(texts))
    return times


def _epoch_times(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Convert numbers since the epoch to times; null outside 1970 to 9999, and for nanoseconds from 2262 on.

    These are negative numbers written without a sign: Go's zero time, of the year 1, is 11651379494838206464 in OTLP.
    HEC and GELF specify seconds, OTLP and Loki nanoseconds, and senders of all of them also send other units: from
    1973 to 5138 the magnitude is unambiguous.
    """
    number = "try_cast(text AS DECIMAL(38, 9))"
    # Decimals and integers throughout: a double has no room for nanoseconds, and would round some up.
    scales = (
        (10**11, f"try_cast({number} AS DECIMAL(20, 9)) * 1000000"),
        (10**14, f"try_cast({number} AS DECIMAL(23, 9)) * 1000"),
        (10**17, number),
    )
    cases = " ".join(f"WHEN abs({number}) < {bound} THEN {micros}" for bound, micros in scales)
    micros = f"CASE {cases} WHEN {number} < {2**63} THEN floor({number})::HUGEINT // 1000 END"
    epoch_micros = compute({"micros": f"try_cast(floor({micros}) AS BIGINT)"}, text=texts)["micros"]
    is_in_range = pc.and_(
        pc.greater_equal(epoch_micros, pa.scalar(0)), pc.less_equal(epoch_micros, pa.scalar(MAX_TIMESTAMP * 1000))
    )
    times: pa.Array[Any] = pc.if_else(is_in_range, epoch_micros, pa.scalar(None, pa.int64())).cast(MICROS)
    return times


def _times(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Convert texts with year and zone (RFC 3339, as in RFC 5424) to times, else null.

    A leap second is the first one of the next minute, as a clock without leap seconds has it.
    """
    none = pa.scalar(None, pa.string())
    is_usual = pc.fill_null(pc.match_substring_regex(texts, RFC3339), pa.scalar(False))
    usual_texts = pc.if_else(is_usual, texts, none)
    micros = compute({"micros": "epoch_us(try_cast(text AS TIMESTAMPTZ))"}, text=usual_texts)["micros"]
    # Fast path: few texts are no time, or one that is rarely written so.
    if usual_texts.null_count > texts.null_count:
        is_rare = pc.and_not(pc.fill_null(pc.match_substring_regex(texts, _RARE_RFC3339), pa.scalar(False)), is_usual)
        if is_rare.true_count:
            rare_texts = pc.if_else(is_rare, texts, none)
            micros = pc.coalesce(micros, compute({"micros": _RARE_MICROS}, text=rare_texts)["micros"])
    bounds = (pa.scalar(MIN_TIMESTAMP * 1000), pa.scalar(MAX_TIMESTAMP * 1000))
    is_in_range = pc.and_(pc.greater_equal(micros, bounds[0]), pc.less_equal(micros, bounds[1]))
    times: pa.Array[Any] = pc.if_else(is_in_range, micros, pa.scalar(None, pa.int64())).cast(MICROS)
    return times

"""What a message is (event, syslog, message, or quarantined and why), as rows of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.landing.event_rules import (
    FOREIGN_CODECS,
    ID_ANNOTATIONS,
    MAX_TIMESTAMP,
    MAX_UUID_BYTES,
    MIN_TIMESTAMP,
    NOT_MEANT_AS_EVENT,
    MessageKind,
)
from penstock.landing.rows.engine import compute, pc
from penstock.landing.rows.json_events import EventRules, event_columns
from penstock.landing.rows.unique_annotations import with_unique_annotations
from penstock.landing.table_schema import FILE_SCHEMA, FOREIGN_COLUMNS, MICROS, SYSLOG_COLUMNS
from penstock.wire.syslog.columns import syslog_messages

RFC3339 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
Columns: TypeAlias = "dict[str, pa.Array[Any]]"


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes an event, and whether valid events keep their raw payload (as ``rows_to_land`` gives them)."""

    events: EventRules = field(default_factory=EventRules)
    keep_payload: bool = True


def table_rows(
    batch: pa.RecordBatch, rules: Rules, landed_at: int | None
) -> Iterator[tuple[MessageKind, pa.RecordBatch]]:
    """The rows (FILE_SCHEMA) of messages (``from_kafka.rows.ROW``), by kind; ``landed_at`` in microseconds, None for
    rows that have not landed.
    """
    batch = batch.append_column("landed_at", pa.repeat(pa.scalar(landed_at, pa.int64()), batch.num_rows).cast(MICROS))
    syslog = is_of(batch, MessageKind.SYSLOG)
    braces = pc.fill_null(pc.starts_with(batch["payload"], "{"), pa.scalar(False))
    events = pc.and_not(braces, syslog)
    if part := _some(batch, events):
        yield from _events(part, rules)
    if part := _some(batch, syslog):
        yield MessageKind.SYSLOG, _shaped(part, _syslog_columns(part))
    if part := _some(batch, pc.invert(pc.or_(events, syslog))):
        yield MessageKind.MESSAGE, _message_rows(part)


def without_payload(kind: MessageKind, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows (FILE_SCHEMA) of a kind; events without their payload."""
    if kind is not MessageKind.EVENT:
        return rows
    at = FILE_SCHEMA.get_field_index("payload")
    return rows.set_column(at, FILE_SCHEMA.field(at), pa.nulls(rows.num_rows, pa.binary()))


def is_of(batch: pa.RecordBatch, *codecs: str) -> pa.Array[Any]:
    """Of which rows the column ``codec`` is one of these; never null."""
    found: pa.Array[Any] = pc.is_in(batch["codec"], pa.array(codecs))
    return found


def uuids_said(batch: pa.RecordBatch) -> pa.Array[Any]:
    """What the protocols of messages (columns ``codec`` and ``annotations``) know them by; null where by nothing."""
    found: pa.Array[Any] = pa.nulls(batch.num_rows, pa.string())
    for codec, name in ID_ANNOTATIONS.items():
        mine = is_of(batch, codec)
        if pc.any(mine).as_py():
            said = pc.map_lookup(batch["annotations"], pa.scalar(name), "last")
            size = pc.binary_length(said)
            fits = pc.and_(pc.greater(size, pa.scalar(0)), pc.less_equal(size, pa.scalar(MAX_UUID_BYTES)))
            found = pc.if_else(pc.and_(mine, pc.fill_null(fits, pa.scalar(False))), said, found)
    return found


def _some(batch: pa.RecordBatch, mask: pa.Array[Any]) -> pa.RecordBatch | None:
    """The rows that a mask holds for; None for none."""
    count = int(pc.sum(mask).as_py() or 0)
    if count == batch.num_rows:
        return batch if count else None
    return batch.filter(mask) if count else None


def _events(batch: pa.RecordBatch, rules: Rules) -> Iterator[tuple[MessageKind, pa.RecordBatch]]:
    columns = event_columns(batch["payload"], rules.events)
    rows = _shaped(batch, columns)
    valid = pc.is_null(columns["reason"])
    if part := _some(rows, valid):
        yield MessageKind.EVENT, part
    meant_otherwise = pc.is_in(columns["reason"], pa.array([reason.value for reason in NOT_MEANT_AS_EVENT]))
    foreign = pc.and_(is_of(batch, *FOREIGN_CODECS), meant_otherwise)
    if part := _some(rows, pc.invert(pc.or_(valid, foreign))):
        yield MessageKind.QUARANTINE, part
    if part := _some(batch, foreign):
        yield MessageKind.MESSAGE, _message_rows(part)


def _shaped(batch: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    """FILE_SCHEMA: ``columns``, else those of the batch, else null."""
    known = set(batch.schema.names)

    def column(one: pa.Field[Any]) -> pa.Array[Any]:
        if one.name in columns or one.name in known:
            found = columns[one.name] if one.name in columns else batch[one.name]
        else:
            found = pa.nulls(batch.num_rows, one.type)
        cast: pa.Array[Any] = found if found.type.equals(one.type) else found.cast(one.type)
        return cast

    shaped = pa.RecordBatch.from_arrays([column(one) for one in FILE_SCHEMA], schema=FILE_SCHEMA)
    # Order: after the columns, which take the last of several annotations of one name, as duplicates and proofs do.
    return with_unique_annotations(shaped)


def _syslog_columns(batch: pa.RecordBatch) -> Columns:
    annotations = batch["annotations"]

    def said(name: str) -> pa.Array[Any]:
        found: pa.Array[Any] = pc.map_lookup(annotations, pa.scalar(name), "last")
        return found

    columns = {column: said(name) for column, name in SYSLOG_COLUMNS.items()}
    message = syslog_messages(batch["payload"].fill_null(b""))
    return {**columns, "message": message, "host": said("hostname"), "event_time": _times(said("timestamp"))}


def _message_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Messages, with what senders of other protocols say of them in columns."""
    foreign = is_of(batch, *FOREIGN_CODECS)
    if not pc.any(foreign).as_py():
        return _shaped(batch, {})

    def said(name: str) -> pa.Array[Any]:
        found: pa.Array[Any] = pc.map_lookup(batch["annotations"], pa.scalar(name), "last")
        kept: pa.Array[Any] = pc.if_else(foreign, found, pa.scalar(None, pa.string()))
        return kept

    columns = {column: said(name) for column, name in FOREIGN_COLUMNS.items()}
    columns["uuid"] = uuids_said(batch)
    host: pa.Array[Any] = pc.coalesce(said("resource.host.name"), said("host"))
    time: pa.Array[Any] = pc.coalesce(said("time"), said("timestamp"))
    return _shaped(batch, {**columns, "host": host, "event_time": pc.coalesce(_epoch_times(time), _times(time))})


def _epoch_times(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Numbers since the epoch as times; null where not of 1970 to 9999.

    Protocols say seconds (HEC, GELF) or nanoseconds (OTLP, Loki), senders of all of them also give the other units: the
    magnitude tells them apart from 1973 to 5138.
    """
    number = "try_cast(text AS DECIMAL(38, 9))"
    scaled = ((11, f"{number} * 1000000"), (14, f"{number} * 1000"), (17, number))
    cases = " ".join(f"WHEN abs({number}) < 1e{digits} THEN {micros}" for digits, micros in scaled)
    micros = f"CASE {cases} ELSE {number} / 1000 END"
    found = compute({"micros": f"try_cast(floor({micros}) AS BIGINT)"}, text=texts)["micros"]
    inside = pc.and_(pc.greater_equal(found, pa.scalar(0)), pc.less_equal(found, pa.scalar(MAX_TIMESTAMP * 1000)))
    times: pa.Array[Any] = pc.if_else(inside, found, pa.scalar(None, pa.int64())).cast(MICROS)
    return times


def _times(texts: pa.Array[Any]) -> pa.Array[Any]:
    """The times that say their year and zone (RFC 3339, as in RFC 5424), else null."""
    full = pc.fill_null(pc.match_substring_regex(texts, RFC3339), pa.scalar(False))
    texts = pc.if_else(full, texts, pa.scalar(None, pa.string()))
    micros = compute({"micros": "epoch_us(try_cast(text AS TIMESTAMPTZ))"}, text=texts)["micros"]
    bounds = (pa.scalar(MIN_TIMESTAMP * 1000), pa.scalar(MAX_TIMESTAMP * 1000))
    inside = pc.and_(pc.greater_equal(micros, bounds[0]), pc.less_equal(micros, bounds[1]))
    times: pa.Array[Any] = pc.if_else(inside, micros, pa.scalar(None, pa.int64())).cast(MICROS)
    return times

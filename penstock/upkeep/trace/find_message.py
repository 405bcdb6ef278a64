"""Find one row in the table's files, or one message in the log. Reads only the columns that are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.event_rules import FOREIGN_CODECS, MessageKind
from penstock.landing.rows.table_rows import protocol_uuids
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import RowReader, TableFile, is_missing_or_damaged, open_rows
from penstock.landing.table_paths import partition_value
from penstock.log.errors import CorruptBatch, LogError
from penstock.log.read.segment_view import StoredBatch
from penstock.log.read.topic_reader import TopicReader
from penstock.proof.reread.messages import event_of, of_codec
from penstock.qualified_names import topic_and_partition

DETAILS = ("topic", "partition", "offset", "source", "bucket", "received", "timestamp", "landed_at", "uuid", "reason")
"""The reported columns of a row; older files may lack some."""

Report = Callable[[str], None]
"""Callback for the progress of a search."""
Mask: TypeAlias = "pa.BooleanArray | pa.ChunkedArray[pa.BooleanScalar]"


def ignore_progress(detail: str) -> None:
    """Ignore the progress."""


def find_offset(
    table: TablePath, names: Iterable[TableFile], topic: str, offset: int, report: Report = ignore_progress
) -> dict[str, Any] | None:
    """Return the row of an offset: DETAILS, ``file`` and ``kind``; None if no file has it.

    ``topic`` may be a partition of Kafka (``name/0``).
    """
    name, partition = topic_and_partition(topic)

    def matches(rows: pa.Table) -> Mask:
        is_match = pc.and_(
            pc.equal(rows["offset"], pa.scalar(offset)), pc.equal(rows["topic"].cast(pa.string()), pa.scalar(name))
        )
        if "partition" not in rows.column_names:
            return pc.and_(is_match, pa.scalar(partition is None))
        partitions = rows["partition"]
        matches_partition = pc.is_null(partitions) if partition is None else pc.equal(partitions, pa.scalar(partition))
        return pc.and_(is_match, matches_partition)

    return _find_row(table, names, ("topic", "partition", "offset"), ("offset", offset), matches, report)


def find_uuid(
    table: TablePath, names: Iterable[TableFile], uuid: str, topic: str | None = None, report: Report = ignore_progress
) -> dict[str, Any] | None:
    """Return the first row with a uuid (of ``topic`` only, if given), as ``find_offset``; None if no file has it."""

    def matches(rows: pa.Table) -> Mask:
        is_match = pc.equal(rows["uuid"], pa.scalar(uuid))
        if topic is None:
            return is_match
        return pc.and_(is_match, pc.equal(rows["topic"].cast(pa.string()), pa.scalar(topic)))

    columns = ("uuid",) if topic is None else ("uuid", "topic")
    return _find_row(table, names, columns, ("uuid", uuid), matches, report)


def _find_row(
    table: TablePath,
    names: Iterable[TableFile],
    columns: Sequence[str],
    column_and_value: tuple[str, Any],
    matches: Callable[[pa.Table], Mask],
    report: Report,
) -> dict[str, Any] | None:
    for number, name in enumerate(names, 1):
        report(f"file {number}: {name}")
        try:
            with open_rows(table, name) as file:
                row = _find_in_file(file, columns, column_and_value, matches)
        # Maintenance rewrote the file since the listing, or it is damaged.
        except (pa.ArrowInvalid, OSError) as error:
            if not is_missing_or_damaged(error):
                raise
            continue
        if row is not None:
            return row | {"file": name, "kind": partition_value(name, "kind")}
    return None


def _find_in_file(
    file: RowReader, columns: Sequence[str], column_and_value: tuple[str, Any], matches: Callable[[pa.Table], Mask]
) -> dict[str, Any] | None:
    names = file.columns
    if column_and_value[0] not in names:
        return None
    # Fast path: statistics rule out row groups; DETAILS are read for the one group that has the row.
    for group in file.groups(column_and_value[0], [column_and_value[1]]):
        index = pc.index(matches(file.read_group(group, [name for name in columns if name in names])), True).as_py()
        if index >= 0:
            row = file.read_group(group, [name for name in DETAILS if name in names]).slice(index, 1)
            values: dict[str, Any] = row.to_pylist()[0]
            return {name: values.get(name) for name in DETAILS}
    return None


def read_row(reader: TopicReader, offset: int) -> StoredBatch | None:
    """Return the row at an offset, or None in a gap or after the end. Raises CorruptBatch."""
    return next(reader.read(offset, end=offset + 1), None)


def find_in_log(reader: TopicReader, uuid: str, begin: int, report: Report = ignore_progress) -> int | None:
    """Return the first offset from ``begin`` on whose message has the uuid, or None. Skips corrupt batches."""
    for stored in _readable(reader, begin):
        report(f"{reader.path.name}, offset {stored.base}")
        codec = stored.origin.codec
        for row in pc.indices_nonzero(_may_have_uuid(stored.batch, codec, uuid)).to_numpy().tolist():
            event = event_of(stored.batch.slice(row, 1), codec)
            if event is not None and event.uuid == uuid:
                return stored.base + int(row)
    return None


def _may_have_uuid(batch: pa.RecordBatch, codec: str, uuid: str) -> Mask:
    """Return a mask of the rows that contain the uuid in an event's text, or have it as their protocol's id."""
    payloads = batch.column("payload")
    is_in_payload: Mask = pc.and_(pc.match_substring(payloads, uuid), pc.starts_with(payloads, "{"))
    is_protocol_id: Mask = pc.equal(protocol_uuids(of_codec(batch, codec)), pa.scalar(uuid))
    return pc.or_kleene(is_in_payload, is_protocol_id)


def _readable(reader: TopicReader, begin: int) -> Iterator[StoredBatch]:
    while True:
        try:
            for stored in reader.read(begin):
                yield stored
                begin = stored.end
            return
        except CorruptBatch as error:
            begin = max(error.end, begin + 1)
        # A topic of a later version, or a deleted one, has no readable rows.
        except (LogError, FileNotFoundError):
            return


def likely_kinds(payload: bytes | None, codec: str) -> tuple[str, ...]:
    """Return the kinds that a message can have in the table."""
    if codec == MessageKind.SYSLOG:
        return (MessageKind.SYSLOG,)
    foreign = (MessageKind.MESSAGE,) if codec in FOREIGN_CODECS else ()
    return (
        (MessageKind.EVENT, MessageKind.QUARANTINE, *foreign)
        if payload is not None and payload.startswith(b"{")
        else (MessageKind.MESSAGE,)
    )

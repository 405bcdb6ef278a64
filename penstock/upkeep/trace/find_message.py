"""Finding one row in the table's files and one message in the log: with pyarrow, only the columns needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.event_rules import FOREIGN_CODECS, MessageKind
from penstock.landing.journal import PARTITION_MARK
from penstock.landing.rows.table_rows import uuids_said
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import RowReader, TableFile, open_rows
from penstock.landing.table_paths import partition_value
from penstock.log.errors import CorruptBatch, LogError
from penstock.log.read.segment_view import StoredBatch
from penstock.log.read.topic_reader import TopicReader
from penstock.proof.reread import event_of, of_codec

DETAILS = ("topic", "partition", "offset", "source", "bucket", "received", "timestamp", "landed_at", "uuid", "reason")
"""What is told of a row, where the file has it."""

Tell = Callable[[str], None]
"""Is told how far the search is."""
Mask: TypeAlias = "pa.BooleanArray | pa.ChunkedArray[pa.BooleanScalar]"


def silent(detail: str) -> None:
    """Nobody listens."""


def find_offset(
    table: TablePath, names: Iterable[TableFile], topic: str, offset: int, tell: Tell = silent
) -> dict[str, Any] | None:
    """The row of an offset: DETAILS, ``file`` and ``kind``; None where no file has it. ``topic`` may be ``name/0``."""
    name, _, partition = topic.partition(PARTITION_MARK)

    def hits(rows: pa.Table) -> Mask:
        found = pc.and_(
            pc.equal(rows["offset"], pa.scalar(offset)), pc.equal(rows["topic"].cast(pa.string()), pa.scalar(name))
        )
        if "partition" not in rows.column_names:
            return pc.and_(found, pa.scalar(not partition))
        numbers = rows["partition"]
        right = pc.equal(numbers, pa.scalar(int(partition))) if partition else pc.is_null(numbers)
        return pc.and_(found, right)

    return _find(table, names, ("topic", "partition", "offset"), ("offset", offset), hits, tell)


def find_uuid(
    table: TablePath, names: Iterable[TableFile], uuid: str, topic: str | None = None, tell: Tell = silent
) -> dict[str, Any] | None:
    """The first row with a uuid in these files, of ``topic`` alone where given; as ``find_offset``."""

    def hits(rows: pa.Table) -> Mask:
        found = pc.equal(rows["uuid"], pa.scalar(uuid))
        if topic is None:
            return found
        return pc.and_(found, pc.equal(rows["topic"].cast(pa.string()), pa.scalar(topic)))

    columns = ("uuid",) if topic is None else ("uuid", "topic")
    return _find(table, names, columns, ("uuid", uuid), hits, tell)


def _find(
    table: TablePath,
    names: Iterable[TableFile],
    columns: Sequence[str],
    wanted: tuple[str, Any],
    hits: Callable[[pa.Table], Mask],
    tell: Tell,
) -> dict[str, Any] | None:
    for number, name in enumerate(names, 1):
        tell(f"file {number}: {name}")
        try:
            with open_rows(table, name) as file:
                row = _find_in(file, columns, wanted, hits)
        except (FileNotFoundError, pa.ArrowInvalid):  # rewritten by others since, or damaged
            continue
        except OSError as error:
            if error.errno is None:  # pyarrow's word for a file that is no Parquet (any more)
                continue
            raise
        if row is not None:
            return row | {"file": name, "kind": partition_value(name, "kind")}
    return None


def _find_in(
    file: RowReader, columns: Sequence[str], wanted: tuple[str, Any], hits: Callable[[pa.Table], Mask]
) -> dict[str, Any] | None:
    names = file.columns
    if wanted[0] not in names:
        return None
    for group in file.groups(*wanted):
        at = pc.index(hits(file.read_group(group, [name for name in columns if name in names])), True).as_py()
        if at >= 0:
            row = file.read_group(group, [name for name in DETAILS if name in names]).slice(at, 1)
            found: dict[str, Any] = row.to_pylist()[0]
            return {name: found.get(name) for name in DETAILS}
    return None


def read_one(reader: TopicReader, offset: int) -> StoredBatch | None:
    """The row at an offset; None where it is in a gap or beyond the end. Raises CorruptBatch."""
    return next(reader.read(offset, end=offset + 1), None)


def find_in_log(reader: TopicReader, uuid: str, begin: int, tell: Tell = silent) -> int | None:
    """The first offset from ``begin`` on with a message that has the uuid; corrupt batches are passed over."""
    for stored in _readable(reader, begin):
        tell(f"{reader.path.name}, offset {stored.base}")
        codec = stored.origin.codec
        for row in pc.indices_nonzero(_may_have_uuid(stored.batch, codec, uuid)).to_numpy().tolist():
            event = event_of(stored.batch.slice(row, 1), codec)
            if event is not None and event.uuid == uuid:
                return stored.base + int(row)
    return None


def _may_have_uuid(batch: pa.RecordBatch, codec: str, uuid: str) -> Mask:
    """The rows with a uuid in the text of what may be an event, or as the id that their protocol has."""
    payloads = batch.column("payload")
    near: Mask = pc.and_(pc.match_substring(payloads, uuid), pc.starts_with(payloads, "{"))
    said: Mask = pc.equal(uuids_said(of_codec(batch, codec)), pa.scalar(uuid))
    return pc.or_kleene(near, said)


def _readable(reader: TopicReader, begin: int) -> Iterator[StoredBatch]:
    while True:
        try:
            for stored in reader.read(begin):
                yield stored
                begin = stored.end
            return
        except CorruptBatch as error:
            begin = max(error.end, begin + 1)
        except (LogError, FileNotFoundError):  # such as a topic of a later version
            return


def likely_kinds(payload: bytes | None, codec: str) -> tuple[str, ...]:
    """The kinds that a message can have in the table."""
    if codec == MessageKind.SYSLOG:
        return (MessageKind.SYSLOG,)
    foreign = (MessageKind.MESSAGE,) if codec in FOREIGN_CODECS else ()
    return (
        (MessageKind.EVENT, MessageKind.QUARANTINE, *foreign)
        if payload is not None and payload.startswith(b"{")
        else (MessageKind.MESSAGE,)
    )

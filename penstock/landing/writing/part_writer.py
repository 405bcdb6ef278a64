"""The work of a task: batches of messages in, files of the table out.

Rows meet Python only as whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.duplicates.decision import StreamJudge
from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import mapped_runs
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.rows.table_rows import Rules, table_rows, without_payload
from penstock.landing.storage.object_errors import TablesAway, translate_full_disk
from penstock.landing.storage.object_path import TablePath
from penstock.landing.transform.checked import OfKind
from penstock.landing.transform.rules import Transformation, TransformRules
from penstock.landing.writing.written_file import ROW_GROUP, FileRole, FileWriter, TypedFile, WrittenFile
from penstock.records import concatenated

MIN_JOINED_ROWS = 32_000
MIN_JOINED_BYTES = 16 << 20
"""Size at which joined batches are processed: calls on columns have a fixed cost."""
GROUP_BYTES = 64 << 20
"""Limit: a row group is written when it has ROW_GROUP rows, or this many bytes."""


class TypedWriter(Protocol):
    """Files of typed tables for the rows of one file of ``landed``."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows of a row group of ``landed``."""

    def close(self) -> Mapping[str, TypedFile | None]:
        """Complete the files and return them as ``WrittenFile.typed``."""

    def discard(self) -> None:
        """Remove the unfinished files."""


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of tasks.

    ``table`` is the folder that they write into, ``keys`` the folder of landed keys, ``window`` is in microseconds.
    ``typed`` opens files of typed tables for events of a day of receipt; None without such tables. ``hashed``: the sums
    of files have the hashes of whole rows.
    """

    table: TablePath
    keys: Path
    window: int
    rules: Rules = field(default_factory=Rules)
    transform: TransformRules = field(default_factory=TransformRules)
    typed: Callable[[date], TypedWriter] | None = None
    hashed: bool = False


@dataclass(frozen=True, slots=True)
class PartResult:
    """The files of a task.

    ``through`` is the last batch whose keys the task knew, ``failures`` are texts about its transformation, ``away``
    says why the store could not be written, ``landed_at`` is the time of all rows in microseconds.
    """

    files: list[WrittenFile]
    through: int
    failures: list[str] = field(default_factory=list)
    away: str = ""
    landed_at: int = 0


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages (``from_kafka.rows.ROW``); with ``relands`` they land again because they were lost."""

    rows: pa.RecordBatch
    relands: bool = False


def write_part(sources: Iterable[MessageBatch], job: Job, landed_at: int) -> PartResult:
    """Land all messages; ``landed_at`` in microseconds."""
    transformation = Transformation(job.transform.steps())
    try:
        with translate_full_disk(job.table), _PartWriter(job) as writer:
            for source in join_small_batches(sources):
                for kind, rows in rows_to_land(source.rows, job.rules, transformation, landed_at):
                    writer.add(kind, rows, source.relands)
            return replace(writer.finish(), failures=transformation.failures(), landed_at=landed_at)
    except TablesAway as error:
        # The driver waits and retries: a failed task would end the query.
        return PartResult([], -1, away=str(error))


def rows_to_land(
    messages: pa.RecordBatch, rules: Rules, transformation: Transformation, landed_at: int | None
) -> Iterator[OfKind]:
    """Yield the table's rows for messages, with duplicates; ``landed_at`` None for messages that still wait."""
    for kind, rows in transformation.apply(table_rows(messages, rules, landed_at)):
        yield kind, rows if rules.keep_payload else without_payload(kind, rows)


def join_small_batches(sources: Iterable[MessageBatch]) -> Iterator[MessageBatch]:
    """Yield joined batches, so that a call on columns has many rows."""
    waiting: list[MessageBatch] = []
    rows = size = 0
    for source in sources:
        if waiting and (source.relands != waiting[0].relands or rows >= MIN_JOINED_ROWS or size >= MIN_JOINED_BYTES):
            yield _join(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(source)
        rows, size = rows + source.rows.num_rows, size + source.rows.nbytes
    if waiting:
        yield _join(waiting)


def _join(sources: list[MessageBatch]) -> MessageBatch:
    return MessageBatch(concatenated([source.rows for source in sources]), sources[0].relands)


FileKey = tuple[MessageKind, date, FileRole, bool]
"""Kind, day of receipt and role of a file, and whether its rows have uuids: all of them have, or none."""


class _PartWriter:
    """Files of a task, with rows that wait until there are enough for a row group."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._through, landed = mapped_runs(job.keys, job.window)
        self._judge = StreamJudge(landed, job.window)
        self._waiting: dict[FileKey, list[tuple[pa.RecordBatch, EventsSeen | None]]] = {}
        self._writers: dict[FileKey, FileWriter] = {}
        self._typed: dict[FileKey, TypedWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # On a full disk the batch is written again and again: unfinished files would take the space that is freed.
        for writer in self._writers.values():
            writer.__exit__(kind, error, trace)
        if kind is not None:
            for typed in self._typed.values():
                typed.discard()

    def add(self, kind: MessageKind, rows: pa.RecordBatch, relands: bool) -> None:
        """Take rows of a kind; duplicates among them go to separate files."""
        role = FileRole.RELANDED if relands else FileRole.NORMAL
        without_uuid = rows["uuid"].null_count if kind in WITH_UUID else rows.num_rows
        if without_uuid == rows.num_rows:
            self._add_by_day(kind, role, rows, None)
        elif not without_uuid:
            self._add_with_uuids(kind, rows, relands)
        else:
            has_uuid = pc.is_valid(rows["uuid"])
            self._add_by_day(kind, role, rows.filter(pc.invert(has_uuid)), None)
            self._add_with_uuids(kind, rows.filter(has_uuid), relands)

    def _add_with_uuids(self, kind: MessageKind, rows: pa.RecordBatch, relands: bool) -> None:
        """Take rows that all have a uuid."""
        seen = EventsSeen.from_rows(rows)
        if relands:
            self._add_by_day(kind, FileRole.RELANDED, rows, seen)
            return
        # Duplicates of earlier batches are certain and dropped. A repeat within the task is kept in a separate file:
        # the row that it repeats may turn out to be a duplicate of another task's.
        before, repeats = self._judge.judge(seen)
        for role, mask in ((FileRole.NORMAL, ~before & ~repeats), (FileRole.SEPARATE, repeats)):
            if mask.all():
                self._add_by_day(kind, role, rows, seen)
            elif mask.any():
                self._add_by_day(kind, role, rows.filter(pa.array(mask)), seen.select_rows(mask))

    def _add_by_day(self, kind: MessageKind, role: FileRole, rows: pa.RecordBatch, seen: EventsSeen | None) -> None:
        days = rows["timestamp"].cast(pa.date32())
        distinct = pc.unique(days)
        for day in distinct:
            if len(distinct) == 1:
                self._append((kind, day.as_py(), role, seen is not None), rows, seen)
            else:
                mask = pc.equal(days, day)
                events = seen.select_rows(mask.to_numpy(zero_copy_only=False)) if seen is not None else None
                self._append((kind, day.as_py(), role, seen is not None), rows.filter(mask), events)

    def _append(self, key: FileKey, rows: pa.RecordBatch, seen: EventsSeen | None) -> None:
        waiting = self._waiting.setdefault(key, [])
        waiting.append((rows, seen))
        if sum(part.num_rows for part, _ in waiting) >= ROW_GROUP or sum(p.nbytes for p, _ in waiting) >= GROUP_BYTES:
            self._write_group(key)

    def _write_group(self, key: FileKey) -> None:
        waiting = self._waiting.pop(key, [])
        writer = self._writers.get(key) or FileWriter(self._job.table, *key[:3], summed=True, hashed=self._job.hashed)
        self._writers[key] = writer
        seen = [events for _, events in waiting if events is not None]
        rows = writer.write(concatenated([rows for rows, _ in waiting]), EventsSeen.concat(seen) if seen else None)
        # Rows that land again, and repeats, are few: the driver converts those that it commits.
        if self._job.typed is not None and key[0] is MessageKind.EVENT and key[2] is FileRole.NORMAL:
            if key not in self._typed:
                self._typed[key] = self._job.typed(key[1])
            self._typed[key].write(rows)

    def finish(self) -> PartResult:
        """Write waiting rows, and complete the files."""
        for key in list(self._waiting):
            self._write_group(key)
        typed = {key: writer.close() for key, writer in self._typed.items()}
        files = [replace(writer.close(), typed=typed.get(key, {})) for key, writer in self._writers.items()]
        return PartResult(files, self._through)

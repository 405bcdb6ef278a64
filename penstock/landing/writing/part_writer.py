"""What a task does: batches of messages in, files of the table out. Rows meet Python only as whole columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import mapped_runs
from penstock.landing.duplicates.stream_judge import StreamJudge
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.rows.table_rows import Rules, table_rows, without_payload
from penstock.landing.storage.object_errors import TablesAway
from penstock.landing.storage.object_path import TablePath
from penstock.landing.transform.checked import OfKind
from penstock.landing.transform.rules import Transformation, TransformRules
from penstock.landing.writing.written_file import AGAIN, ASIDE, KEPT, ROW_GROUP, FileWriter, WrittenFile
from penstock.records import concatenated

AT_ONCE_ROWS = 32_000
AT_ONCE_BYTES = 16 << 20
"""So many messages are judged at once."""
GROUP_BYTES = 64 << 20
"""A row group is written when it has ROW_GROUP rows, or so many bytes."""


@dataclass(frozen=True, slots=True)
class Job:
    """What tasks are told. ``table``: the folder they write into; ``keys``: that of the keys that landed; ``window`` in
    microseconds.
    """

    table: TablePath
    keys: Path
    window: int
    rules: Rules = field(default_factory=Rules)
    transform: TransformRules = field(default_factory=TransformRules)


@dataclass(frozen=True, slots=True)
class PartResult:
    """The files of a task. ``through``: the batch through which it knew the keys that landed before; ``failures``: what
    is to be told of its transformation; ``away``: why it could not write, where the store was away.
    """

    files: list[WrittenFile]
    through: int
    failures: list[str] = field(default_factory=list)
    away: str = ""


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages (``from_kafka.rows.ROW``); ``again``: they land again because they were lost, whatever landed before."""

    rows: pa.RecordBatch
    again: bool = False


def write_part(sources: Iterable[MessageBatch], job: Job, landed_at: int) -> PartResult:
    """Land all messages; ``landed_at`` in microseconds."""
    writer, transformation = _PartWriter(job), Transformation(job.transform.steps())
    for source in join_small_batches(sources):
        for kind, rows in rows_to_land(source.rows, job.rules, transformation, landed_at):
            writer.add(kind, rows, source.again)
    try:
        return replace(writer.finish(), failures=transformation.failures())
    except TablesAway as error:  # for the driver, which waits: a task that fails ends the query
        return PartResult([], -1, away=str(error))


def rows_to_land(
    messages: pa.RecordBatch, rules: Rules, transformation: Transformation, landed_at: int | None
) -> Iterator[OfKind]:
    """The rows of messages as the table gets them, but for duplicates; ``landed_at`` None for those that wait."""
    for kind, rows in transformation.apply(table_rows(messages, rules, landed_at)):
        yield kind, rows if rules.keep_payload else without_payload(kind, rows)


def join_small_batches(sources: Iterable[MessageBatch]) -> Iterator[MessageBatch]:
    """Small batches joined, so that a call on columns is for many rows."""
    waiting: list[MessageBatch] = []
    rows = size = 0
    for source in sources:
        if waiting and (source.again != waiting[0].again or rows >= AT_ONCE_ROWS or size >= AT_ONCE_BYTES):
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(source)
        rows, size = rows + source.rows.num_rows, size + source.rows.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(sources: list[MessageBatch]) -> MessageBatch:
    return MessageBatch(concatenated([source.rows for source in sources]), sources[0].again)


Place = tuple[MessageKind, date, str, bool]
"""What a file holds: kind, day of receipt, its role, and whether its rows have uuids: all of them have, or none."""


class _PartWriter:
    """Keeps rows by place until there are enough for a row group."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._through, landed = mapped_runs(job.keys, job.window)
        self._judge = StreamJudge(landed, job.window)
        self._waiting: dict[Place, list[tuple[pa.RecordBatch, EventsSeen | None]]] = {}
        self._writers: dict[Place, FileWriter] = {}

    def add(self, kind: MessageKind, rows: pa.RecordBatch, again: bool) -> None:
        """Take rows of a kind, without the duplicates among them."""
        without = rows["uuid"].null_count if kind in WITH_UUID else rows.num_rows
        if without == rows.num_rows:
            self._by_day(kind, KEPT, rows, None)
        elif not without:
            self._judged(kind, rows, again)
        else:
            has = pc.is_valid(rows["uuid"])
            self._by_day(kind, KEPT, rows.filter(pc.invert(has)), None)
            self._judged(kind, rows.filter(has), again)

    def _judged(self, kind: MessageKind, rows: pa.RecordBatch, again: bool) -> None:
        """Take rows that all have a uuid."""
        seen = EventsSeen.of(rows)
        if again:
            self._by_day(kind, AGAIN, rows, seen)
            return
        before, repeats = self._judge.judged(seen)
        for role, mine in ((KEPT, ~before & ~repeats), (ASIDE, repeats)):
            if mine.all():
                self._by_day(kind, role, rows, seen)
            elif mine.any():
                self._by_day(kind, role, rows.filter(pa.array(mine)), seen.take(mine))

    def _by_day(self, kind: MessageKind, role: str, rows: pa.RecordBatch, seen: EventsSeen | None) -> None:
        days = rows["timestamp"].cast(pa.date32())
        different = pc.unique(days)
        for day in different:
            if len(different) == 1:
                self._keep((kind, day.as_py(), role, seen is not None), rows, seen)
            else:
                mine = pc.equal(days, day)
                events = seen.take(mine.to_numpy(zero_copy_only=False)) if seen is not None else None
                self._keep((kind, day.as_py(), role, seen is not None), rows.filter(mine), events)

    def _keep(self, place: Place, rows: pa.RecordBatch, seen: EventsSeen | None) -> None:
        waiting = self._waiting.setdefault(place, [])
        waiting.append((rows, seen))
        if sum(part.num_rows for part, _ in waiting) >= ROW_GROUP or sum(p.nbytes for p, _ in waiting) >= GROUP_BYTES:
            self._write(place)

    def _write(self, place: Place) -> None:
        waiting = self._waiting.pop(place, [])
        writer = self._writers.get(place) or FileWriter(self._job.table, *place[:3])
        self._writers[place] = writer
        seen = [events for _, events in waiting if events is not None]
        writer.write(concatenated([rows for rows, _ in waiting]), EventsSeen.concat(seen) if seen else None)

    def finish(self) -> PartResult:
        """Write what waits, and close the files."""
        for place in list(self._waiting):
            self._write(place)
        return PartResult([writer.close() for writer in self._writers.values()], self._through)

"""A small planner with the contract of Spark's streaming queries: it plans, runs tasks, and repeats the last batch.

It calls the data source, the tasks and the driver of the landing as Spark does. Invariant: a plan is written before its
batch runs, a commit after the driver's function returned; a batch without a commit runs again with its plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from penstock.files.file_system import OS, make_folder, replace_durably
from penstock.landing.spark_checkpoint import (
    Planned,
    ensure_query_id,
    format_plan,
    newest_commit,
    newest_plan,
    read_plan,
)
from penstock.spark.source.landing_ranges import LandingSource, RangeReader
from penstock.spark.source.slices import Slice
from penstock.testing.crashes import FakeClock

MAX_ATTEMPTS = 4
"""Attempts of a task, as of Spark's ``task.maxFailures``."""
_TYPES = {"topic": StringType(), "begin": LongType(), "end": LongType(), "again": BooleanType()}
_RANGES = StructType([StructField(name, kind) for name, kind in _TYPES.items()])
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Attempt = Callable[[Callable[[], pa.Table]], pa.Table | None]
"""Runs a task's attempt; None if its worker died."""


class SteppedCommits:
    """A pool of one thread that works only when its owner waits for it, or when ``step`` is called."""

    def __init__(self, threads: int = 1, name: str = "") -> None:
        self._waiting: list[tuple[SteppedFuture, Callable[[], Any]]] = []
        self._is_busy = False

    def submit(self, call: Callable[..., Any], *arguments: Any) -> SteppedFuture:
        """Queue a call."""
        future = SteppedFuture(self)
        self._waiting.append((future, lambda: call(*arguments)))
        return future

    def step(self) -> None:
        """Run the first queued call, if there is one and none runs. A kill leaves it without a result."""
        if self._waiting and not self._is_busy:
            future, call = self._waiting.pop(0)
            self._is_busy = True
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - as a pool does
                future.set_exception(error)
            finally:
                self._is_busy = False

    def shutdown(self) -> None:
        """Run all queued calls."""
        while self._waiting:
            self.step()


class SteppedFuture(Future[Any]):
    """A result that is computed when it is asked for."""

    def __init__(self, pool: SteppedCommits) -> None:
        super().__init__()
        self._pool = pool

    def result(self, timeout: float | None = None) -> Any:
        while not self.done():
            self._pool.step()
        return super().result(timeout)


class InlinePool:
    """A pool whose calls run in the caller's thread."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, call: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        return map(call, *arguments)


@dataclass(slots=True)
class _Results:
    tables: list[pa.Table]

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return pa.concat_tables(self.tables)


class _Frame:
    """The planned input of a batch."""

    def __init__(self, session: PlannerSession, reader: RangeReader, slices: list[Slice]) -> None:
        self.sparkSession = session
        self._reader, self._slices = reader, slices

    def mapInArrow(self, task: Task, schema: str) -> _Results:  # noqa: N802 - Spark's name
        """Run the task for each slice; an attempt whose worker dies leaves its files, and is repeated."""
        empty = pa.table({"result": pa.array([], pa.binary())})
        return _Results([empty, *(self._run_task(task, planned) for planned in self._slices)])

    def _run_task(self, task: Task, planned: Slice) -> pa.Table:
        for _ in range(MAX_ATTEMPTS):
            result = self.sparkSession.attempt(lambda: pa.Table.from_batches(task(self._reader.read(planned))))
            if result is not None:
                return result
        raise RuntimeError(f"a task failed {MAX_ATTEMPTS} times")


@dataclass(slots=True)
class _Context:
    environment: dict[str, str] = field(default_factory=dict)


class PlannerSession:
    """The parts of a Spark session that the landing uses. ``attempt`` runs each attempt of a task.

    ``retained``: plans and commits that stay, as of Spark's ``minBatchesToRetain``.
    """

    def __init__(self, clock: FakeClock, attempt: Attempt, retained: int) -> None:
        self.clock, self.attempt, self.retained = clock, attempt, retained
        self.sparkContext = _Context()
        self.query: PlannedQuery | None = None
        self.commits = SteppedCommits()
        self._options: dict[str, str] = {}
        self._run: Callable[[Any, int], None] = lambda batch, number: None

    # One object is session, reader, stream and writer: the landing chains their methods once.
    @property
    def dataSource(self) -> PlannerSession:  # noqa: N802 - Spark's name
        return self

    @property
    def readStream(self) -> PlannerSession:  # noqa: N802 - Spark's name
        return self

    @property
    def writeStream(self) -> PlannerSession:  # noqa: N802 - Spark's name
        return self

    def register(self, source: type[LandingSource]) -> None:
        """Accept the only source."""

    def format(self, name: str) -> Self:
        return self

    queryName = outputMode = format  # noqa: N815 - Spark's names

    def options(self, **options: str) -> Self:
        self._options |= options
        return self

    def option(self, name: str, value: object) -> Self:
        self._options[name] = str(value)
        return self

    def load(self) -> Self:
        return self

    def foreachBatch(self, run: Callable[[Any, int], None]) -> Self:  # noqa: N802 - Spark's name
        self._run = run
        return self

    def trigger(self, **interval: Any) -> Self:
        return self

    def start(self) -> PlannedQuery:
        """Start the query; its batches run in ``PlannedQuery.step``."""
        checkpoint = Path(self._options.pop("checkpointLocation"))
        self.query = PlannedQuery(self, LandingSource(self._options), checkpoint, self._run)
        return self.query


class PlannedQuery:
    """A streaming query, one trigger at a time."""

    def __init__(
        self, session: PlannerSession, source: LandingSource, checkpoint: Path, run: Callable[[Any, int], None]
    ) -> None:
        self._session, self._checkpoint, self._run_batch = session, checkpoint, run
        reader = source.streamReader(_RANGES)
        assert isinstance(reader, RangeReader)
        self._reader = reader
        self._error: Exception | None = None
        self.isActive = True
        self.status: Mapping[str, Any] = {"isTriggerActive": False}
        ensure_query_id(checkpoint)
        planned, committed = newest_plan(checkpoint), newest_commit(checkpoint)
        self._repeats = planned > committed
        self._number = planned if self._repeats else planned + 1
        self._start = self._read_end(self._number - 1)

    def _read_end(self, batch: int) -> dict[str, int]:
        return dict(read_plan(self._checkpoint, batch).end) if batch >= 0 else self._reader.initialOffset()

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False

    def step(self) -> str:
        """Run the next batch if there is input; return a text about it. An error ends the query."""
        try:
            return self._trigger()
        except Exception as error:  # noqa: BLE001 - as Spark does
            self._error, self.isActive = error, False
            return f"failed: {type(error).__name__}"

    def _trigger(self) -> str:
        number, start = self._number, self._start
        if self._repeats:
            end = self._read_end(number)
        else:
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
            if end == start:
                return ""
            self._write("offsets", format_plan(Planned(end, int(self._session.clock.time() * 1000), 0)))
        frame = _Frame(self._session, self._reader, list(self._reader.partitions(start, end)))
        self._run_batch(frame, number)
        self._write("commits", b"v1\n" + json.dumps({"nextBatchWatermarkMs": 0}).encode())
        text = f"batch {number}{' again' if self._repeats else ''}: " + ", ".join(
            f"{name} {start.get(name, 0)}-{last}" for name, last in end.items() if last > start.get(name, 0)
        )
        self._repeats, self._number, self._start = False, number + 1, end
        for folder in ("offsets", "commits"):
            (self._checkpoint / folder / str(number - self._session.retained)).unlink(missing_ok=True)
        return text

    def _write(self, folder: str, content: bytes) -> None:
        path = self._checkpoint / folder / str(self._number)
        make_folder(path.parent)
        replace_durably(OS, path, content)

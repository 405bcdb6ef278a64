"""A batch is committed while the next one is written: one at a time, in order, and what it raises is heard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pyarrow.parquet as pq
import pytest

from penstock.landing.journal import CommitInProgress
from penstock.landing.storage.object_errors import TablesAway
from penstock.landing.table.landed_table import begin_table, table_of
from penstock.landing.table.table_file import NewFile
from penstock.landing.table_paths import Layout
from penstock.landing.writing.background_commit import BackgroundCommit
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job, PartResult, write_part
from penstock.testing.pipe import until
from tests.landing.writing.messages import AT, event, source

WINDOW = 600_000_000


class Slow:
    """A table that commits once ``go_on`` is set, or fails with the next of its ``failures``."""

    def __init__(self, tables: Path) -> None:
        self.layout = Layout.for_tables(tables)
        self.table = begin_table(self.layout)
        self.go_on, self.begun = Event(), 0
        self.failures: list[Exception] = []
        self._real = self.table.commit
        self.table.commit = self._commit  # type: ignore[method-assign]

    def _commit(self, batch: int, files: Sequence[NewFile]) -> None:
        self.begun += 1
        assert self.go_on.wait(20)
        if self.failures:
            raise self.failures.pop()
        self._real(batch, files)

    def uuids(self) -> list[str]:
        parts = [pq.read_table(self.layout.landed / name, partitioning=None) for name in self.table.active()]
        return sorted(uuid for part in parts for uuid in part["uuid"].to_pylist())


class Landing:
    """Who lands into it; ``written``: which batches the tasks have written."""

    def __init__(self, slow: Slow) -> None:
        self.stop, self.under_way = Event(), CommitInProgress()
        self.commits = BackgroundCommit(BatchCommit(slow.table, slow.layout.keys, WINDOW), self.stop, self.under_way)
        self.written: list[int] = []
        self._job = Job(slow.table.folder, slow.layout.keys, WINDOW)

    def land(self, batch: int, *tasks: str) -> None:
        """``tasks``: a letter is an event with that uuid."""
        self.commits.land(batch, lambda: self._write(batch, tasks))

    def _write(self, batch: int, tasks: Sequence[str]) -> list[PartResult]:
        offsets = count(batch * 100)
        self.written.append(batch)
        return [
            write_part([source([(next(offsets), event(uuid)) for uuid in uuids])], self._job, AT) for uuids in tasks
        ]


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(tmp_path / "tables")


@pytest.fixture
def landing(slow: Slow) -> Iterator[Landing]:
    made = Landing(slow)
    yield made
    made.stop.set()
    slow.go_on.set()
    made.commits.close()


def test_the_next_batch_is_written_meanwhile_and_no_other_one_behind_it(slow: Slow, landing: Landing) -> None:
    landing.land(0, "ab")
    beside = Thread(target=landing.land, args=(1, "c"))
    beside.start()
    until(lambda: landing.written == [0, 1] and slow.begun)
    assert [landing.under_way.holds_back(batch) for batch in (0, 1)] == [True, True]
    assert (beside.is_alive(), slow.begun, table_of(slow.layout).newest()) == (True, 1, -1)
    slow.go_on.set()
    beside.join(20)
    landing.commits.settle()
    assert (slow.table.newest(), slow.uuids(), landing.under_way.batch) == (1, ["a", "b", "c"], None)


def test_a_duplicate_of_the_batch_that_is_being_committed_is_found(slow: Slow, landing: Landing) -> None:
    landing.land(0, "ab")
    beside = Thread(target=landing.land, args=(1, "cac"))
    beside.start()
    until(lambda: landing.written == [0, 1])
    slow.go_on.set()
    beside.join(20)
    landing.land(2, "bcd")
    landing.commits.settle()
    assert slow.uuids() == ["a", "b", "c", "d"]


def test_what_a_commit_raises_is_heard_by_the_next_batch_and_without_one(slow: Slow, landing: Landing) -> None:
    slow.failures = [OSError("no space")]
    slow.go_on.set()
    landing.land(0, "a")
    until(lambda: landing.commits.failure() is not None)
    with pytest.raises(OSError, match="no space"):
        landing.land(1, "b")
    with pytest.raises(OSError, match="no space"):
        landing.commits.settle()
    assert (slow.table.newest(), landing.under_way.batch) == (-1, 0)


def test_a_batch_that_the_table_has_is_not_written_again(slow: Slow, landing: Landing) -> None:
    slow.go_on.set()
    landing.land(0, "a")
    landing.commits.close()
    again = Landing(slow)
    again.land(0, "a")
    again.land(1, "b")
    again.commits.close()
    assert (again.written, slow.uuids()) == ([1], ["a", "b"])


def test_a_store_that_is_away_is_waited_for_until_the_landing_is_to_end(slow: Slow, landing: Landing) -> None:
    slow.go_on.set()
    slow.failures = [TablesAway("away")]
    landing.land(0, "ab", "bc")
    landing.commits.settle()
    assert (slow.begun, slow.uuids(), landing.written) == (2, ["a", "b", "c"], [0])
    slow.failures = [TablesAway("away")] * 99
    landing.land(1, "b")
    landing.stop.set()
    with pytest.raises(TablesAway):
        landing.commits.settle()

"""A batch is committed while the next one is written: one commit at a time, in order."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

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
from penstock.landing.writing.written_file import FileWriter, WrittenFile
from penstock.testing.pipe import wait_until
from tests.landing.writing.messages import AT, event, source

WINDOW = 600_000_000


class SlowTable:
    """A table that commits once ``go_on`` is set, or fails with the next of its ``failures``."""

    def __init__(self, tables: Path) -> None:
        self.layout = Layout.for_tables(tables)
        self.table = begin_table(self.layout)
        self.go_on, self.attempts = Event(), 0
        self.failures: list[Exception] = []
        self._real = self.table.commit
        self.table.commit = self._commit  # type: ignore[method-assign]

    def _commit(self, batch: int, files: Sequence[NewFile], description: Mapping[str, Any]) -> None:
        self.attempts += 1
        assert self.go_on.wait(20)
        if self.failures:
            raise self.failures.pop()
        self._real(batch, files, description)

    def uuids(self) -> list[str]:
        parts = [pq.read_table(self.layout.landed / name, partitioning=None) for name in self.table.active()]
        return sorted(uuid for part in parts for uuid in part["uuid"].to_pylist())


class Landing:
    """The landing into a slow table; ``written``: the batches that tasks have written."""

    def __init__(self, slow: SlowTable) -> None:
        self.stop, self.under_way = Event(), CommitInProgress()
        self.commits = BackgroundCommit(BatchCommit(slow.table, slow.layout.keys, WINDOW), self.stop, self.under_way)
        self.written: list[int] = []
        self._job = Job(slow.table.folder, slow.layout.keys, WINDOW)

    def land(self, batch: int, *tasks: str) -> None:
        """Land events; each letter of ``tasks`` is an event with that uuid."""
        self.commits.land(batch, lambda: self._write(batch, tasks))

    def _write(self, batch: int, tasks: Sequence[str]) -> list[PartResult]:
        offsets = count(batch * 100)
        self.written.append(batch)
        return [
            write_part([source([(next(offsets), event(uuid)) for uuid in uuids])], self._job, AT) for uuids in tasks
        ]


@pytest.fixture
def slow(tmp_path: Path) -> SlowTable:
    return SlowTable(tmp_path / "tables")


@pytest.fixture
def landing(slow: SlowTable) -> Iterator[Landing]:
    created = Landing(slow)
    yield created
    created.stop.set()
    slow.go_on.set()
    created.commits.close()


def test_next_batch_is_written_during_commit(slow: SlowTable, landing: Landing) -> None:
    landing.land(0, "ab")
    second_batch = Thread(target=landing.land, args=(1, "c"))
    second_batch.start()
    wait_until(lambda: landing.written == [0, 1] and slow.attempts)
    assert [landing.under_way.holds_back(batch) for batch in (0, 1)] == [True, True]
    assert (second_batch.is_alive(), slow.attempts, table_of(slow.layout).newest()) == (True, 1, -1)
    slow.go_on.set()
    second_batch.join(20)
    landing.commits.settle()
    assert (slow.table.newest(), slow.uuids(), landing.under_way.batch) == (1, ["a", "b", "c"], None)


def test_duplicate_of_batch_in_progress_is_dropped(slow: SlowTable, landing: Landing) -> None:
    landing.land(0, "ab")
    second_batch = Thread(target=landing.land, args=(1, "cac"))
    second_batch.start()
    wait_until(lambda: landing.written == [0, 1])
    slow.go_on.set()
    second_batch.join(20)
    landing.land(2, "bcd")
    landing.commits.settle()
    assert slow.uuids() == ["a", "b", "c", "d"]


def test_error_of_commit_is_raised_by_next_batch_and_settle(slow: SlowTable, landing: Landing) -> None:
    slow.failures = [OSError("no space")]
    slow.go_on.set()
    landing.land(0, "a")
    wait_until(lambda: landing.commits.failure() is not None)
    with pytest.raises(OSError, match="no space"):
        landing.land(1, "b")
    with pytest.raises(OSError, match="no space"):
        landing.commits.settle()
    assert (slow.table.newest(), landing.under_way.batch) == (-1, 0)


@pytest.mark.survives("landing from the log", "full disk")
def test_commit_waits_for_space_on_a_full_disk(
    slow: SlowTable, landing: Landing, caplog: pytest.LogCaptureFixture
) -> None:
    slow.go_on.set()
    slow.failures = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]
    landing.land(0, "ab")
    landing.commits.settle()
    assert (slow.attempts, slow.uuids(), landing.written) == (2, ["a", "b"], [0])
    assert [record.getMessage() for record in caplog.records if "waits" in record.getMessage()] == [
        f"landing waits, and nothing is lost: no space left on device in {slow.table.folder}"
    ]


@pytest.mark.survives("landing from the log", "full disk")
def test_task_on_a_full_disk_reports_the_folder_and_leaves_no_file(
    slow: SlowTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_: FileWriter) -> WrittenFile:
        raise OSError("Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(FileWriter, "close", close)
    part = write_part([source([(0, event("a")), (1, b"text")])], Job(slow.table.folder, slow.layout.keys, WINDOW), AT)
    assert (part.away, part.files) == (f"no space left on device in {slow.table.folder}", [])
    assert list(slow.layout.landed.rglob("*.parquet")) == []


@pytest.mark.survives("landing from the log", "failing disk")
@pytest.mark.parametrize("call", ["fsync", "close"])
def test_task_on_a_failing_disk_ends_with_the_error_and_leaves_no_file(
    slow: SlowTable, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(*((os, "fsync") if call == "fsync" else (FileWriter, "close")), fail)
        with pytest.raises(OSError, match="Input/output error"):
            write_part([source([(0, event("a")), (1, b"text")])], Job(slow.table.folder, slow.layout.keys, WINDOW), AT)
    assert list(slow.layout.landed.rglob("*.parquet")) == []


@pytest.mark.survives("landing from the log", "failing disk")
def test_batch_whose_commit_fails_to_sync_is_landed_once_by_the_next_start(
    slow: SlowTable, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fail(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").endswith(".json"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    slow.go_on.set()
    landing.land(0, "a")
    landing.commits.settle()
    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fail)
        landing.land(1, "b")
        with pytest.raises(OSError, match="Input/output error"):
            landing.commits.settle()
    again = SlowTable(slow.layout.tables)
    again.go_on.set()
    restarted = Landing(again)
    restarted.land(1, "b")
    restarted.land(2, "bc")
    restarted.commits.settle()
    restarted.commits.close()
    assert slow.uuids() == ["a", "b", "c"]


def test_committed_batch_is_not_written_again(slow: SlowTable, landing: Landing) -> None:
    slow.go_on.set()
    landing.land(0, "a")
    landing.commits.close()
    restarted = Landing(slow)
    restarted.land(0, "a")
    restarted.land(1, "b")
    restarted.commits.close()
    assert (restarted.written, slow.uuids()) == ([1], ["a", "b"])


def test_commit_retries_unreachable_store_until_stopped(slow: SlowTable, landing: Landing) -> None:
    slow.go_on.set()
    slow.failures = [TablesAway("away")]
    landing.land(0, "ab", "bc")
    landing.commits.settle()
    assert (slow.attempts, slow.uuids(), landing.written) == (2, ["a", "b", "c"], [0])
    slow.failures = [TablesAway("away")] * 99
    landing.land(1, "b")
    landing.stop.set()
    with pytest.raises(TablesAway):
        landing.commits.settle()

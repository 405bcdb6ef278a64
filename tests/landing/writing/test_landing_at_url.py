"""Batches landed into an object store without Spark: duplicates, merges, deletions, rebuilt keys."""

from __future__ import annotations

import shutil
import threading
from functools import partial

import pytest

import penstock.tables
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, DeletionRecord, request_deletion
from penstock.landing.storage.object_errors import TablesAway, retry_while_away
from penstock.landing.table.landed_table import begin_table, table_of
from penstock.landing.table.row_counts import TYPE, RowCounts
from penstock.landing.table_paths import Layout
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job, MessageBatch, PartResult, write_part
from penstock.upkeep.compaction.compaction import compact_table, remove_old_files
from penstock.upkeep.deletion.removal import count_rows, execute_deletions
from penstock.upkeep.trace.find_message import find_uuid
from tests.engines.test_foreign_engines import LANDED_AT, WINDOW, messages
from tests.object_store import S3Server
from tests.spark.spark_helpers import event


class Landing:
    """A landing of batches of events into a URL."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.job = Job(layout.landed, layout.keys, WINDOW)
        self.commit = BatchCommit(begin_table(layout), layout.keys, WINDOW, lambda: DeletionRecord(layout).keys())

    def parts(self, batch: int, *numbers: range) -> list[PartResult]:
        tasks = [[MessageBatch(messages([event(number) for number in of_task], batch))] for of_task in numbers]
        return [write_part(task, self.job, LANDED_AT) for task in tasks]

    def land(self, batch: int, *numbers: range) -> None:
        self.commit.land(batch, partial(self.parts, batch, *numbers))

    def uuids(self) -> list[str]:
        assert self.layout.store is not None
        rows = penstock.tables.open(self.layout.store.root, "events", self.layout.store.options)
        return sorted(rows.to_table(columns=["uuid"])["uuid"].to_pylist())


def uuids_of(numbers: range) -> list[str]:
    return sorted(f"u{number}" for number in numbers)


@pytest.fixture
def landing(at_url: Layout) -> Landing:
    return Landing(at_url)


def test_duplicates_do_not_land(landing: Landing) -> None:
    landing.land(0, range(10), range(5, 15))
    landing.land(1, range(10, 20))
    landing.land(1, range(100))
    assert landing.uuids() == uuids_of(range(20))


def test_keys_are_rebuilt_from_the_table(landing: Landing) -> None:
    landing.land(0, range(10))
    shutil.rmtree(landing.layout.keys)
    Landing(landing.layout).land(1, range(20))
    assert landing.uuids() == uuids_of(range(20))


@pytest.mark.survives("landing from the log", "peer away")
def test_batch_whose_answer_was_lost_is_in_the_keys(landing: Landing) -> None:
    """The table has the batch, and the driver does not know it yet."""
    parts = landing.parts(0, range(10))
    begin_table(landing.layout).commit(0, parts[0].files)
    landing.land(0, range(10))
    landing.land(1, range(20))
    assert landing.uuids() == uuids_of(range(20))


def test_task_reports_unreachable_store(landing: Landing, s3: S3Server) -> None:
    with s3.stopped():
        (part,) = landing.parts(0, range(10))
    assert "cannot be reached" in part.away
    assert part.files == []


def test_retry_waits_for_unreachable_store(landing: Landing, s3: S3Server) -> None:
    tries: list[int] = []

    def land() -> None:
        tries.append(len(tries))
        if len(tries) > 1:
            return landing.land(0, range(10))
        with s3.stopped():
            return landing.land(0, range(10))

    with pytest.raises(TablesAway):
        land()
    retry_while_away(land, threading.Event())
    assert len(tries) == 2
    assert landing.uuids() == uuids_of(range(10))


def test_retry_ends_when_stopped() -> None:
    stop = threading.Event()
    stop.set()

    def away() -> None:
        raise TablesAway("s3://lake/t cannot be reached: no route")

    with pytest.raises(TablesAway):
        retry_while_away(away, stop)


def test_merge_deletion_and_removal_keep_other_rows(landing: Landing) -> None:
    layout = landing.layout
    for batch in range(4):
        landing.land(batch, range(batch * 10, batch * 10 + 10))
    assert compact_table(layout.landed) == (4, 1)
    where = parse_conditions("uuid in ('u3', 'u17')")
    assert count_rows(layout, where) == (2, 1)
    number = request_deletion(layout, REQUESTED, where).number
    assert execute_deletions(layout, WINDOW) == 1
    assert DeletionRecord(layout).rows(number) == 2
    remaining = [number for number in range(40) if number not in (3, 17)]
    assert landing.uuids() == sorted(f"u{number}" for number in remaining)
    remove_old_files(layout.landed)
    landing.land(4, range(50))
    assert landing.uuids() == sorted(
        f"u{number}" for number in [*remaining, *range(40, 50)]
    )  # deleted events do not land again


def test_rows_of_table_at_url_are_readable(landing: Landing) -> None:
    landing.land(0, range(10))
    layout = landing.layout
    row = find_uuid(layout.landed, table_of(layout).active(), "u7")
    assert row is not None
    assert row["offset"] == 7
    assert RowCounts(layout, TYPE).count() == {("event", "click"): 10}

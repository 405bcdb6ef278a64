"""Batches landed into an object store, without Spark: duplicates, merging, deletion, the index made again."""

from __future__ import annotations

import shutil
import threading
from functools import partial

import pytest

import penstock.tables
from penstock.landing.requests.conditions import parse
from penstock.landing.requests.deletions import ASKED, Record, ask
from penstock.landing.storage.object_errors import TablesAway, retry_while_away
from penstock.landing.table.landed_table import begin_table, table_of
from penstock.landing.table.row_counts import TYPE, RowCounts
from penstock.landing.table_paths import Layout
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job, MessageBatch, PartResult, write_part
from penstock.upkeep.compaction.compaction import compact_table, remove_old_files
from penstock.upkeep.deletion.removal import carry_out, count
from penstock.upkeep.trace.find_message import find_uuid
from tests.engines.test_foreign_engines import LANDED_AT, WINDOW, messages
from tests.object_store import S3Server
from tests.spark.spark_helpers import event


class Landing:
    """Lands batches of events into a URL, as many parts as are given."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.job = Job(layout.landed, layout.keys, WINDOW)
        self.commit = BatchCommit(begin_table(layout), layout.keys, WINDOW, lambda: Record(layout).keys())

    def parts(self, batch: int, *numbers: range) -> list[PartResult]:
        sources = [[MessageBatch(messages([event(number) for number in one], batch))] for one in numbers]
        return [write_part(one, self.job, LANDED_AT) for one in sources]

    def land(self, batch: int, *numbers: range) -> None:
        self.commit.land(batch, partial(self.parts, batch, *numbers))

    def uuids(self) -> list[str]:
        assert self.layout.store is not None
        rows = penstock.tables.open(self.layout.store.root, "events", self.layout.store.options)
        return sorted(rows.to_table(columns=["uuid"])["uuid"].to_pylist())


def named(numbers: range) -> list[str]:
    return sorted(f"u{number}" for number in numbers)


@pytest.fixture
def landing(at_url: Layout) -> Landing:
    return Landing(at_url)


def test_duplicates_of_other_tasks_and_batches_do_not_land(landing: Landing) -> None:
    landing.land(0, range(10), range(5, 15))
    landing.land(1, range(10, 20))
    landing.land(1, range(100))
    assert landing.uuids() == named(range(20))


def test_the_index_is_made_again_from_the_table(landing: Landing) -> None:
    landing.land(0, range(10))
    shutil.rmtree(landing.layout.keys)
    Landing(landing.layout).land(1, range(20))
    assert landing.uuids() == named(range(20))


def test_a_commit_whose_answer_was_lost_is_in_the_index(landing: Landing) -> None:
    """The table has the batch, and who landed it does not know yet."""
    parts = landing.parts(0, range(10))
    begin_table(landing.layout).commit(0, parts[0].files)
    landing.land(0, range(10))
    landing.land(1, range(20))
    assert landing.uuids() == named(range(20))


def test_a_task_says_that_the_store_is_away(landing: Landing, s3: S3Server) -> None:
    with s3.stopped():
        (part,) = landing.parts(0, range(10))
    assert "cannot be reached" in part.away
    assert part.files == []


def test_a_store_that_is_away_is_waited_for(landing: Landing, s3: S3Server) -> None:
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
    assert landing.uuids() == named(range(10))


def test_who_is_to_stop_waits_no_longer() -> None:
    stop = threading.Event()
    stop.set()

    def away() -> None:
        raise TablesAway("s3://lake/t cannot be reached: no route")

    with pytest.raises(TablesAway):
        retry_while_away(away, stop)


def test_files_are_merged_rows_deleted_and_old_files_removed(landing: Landing) -> None:
    layout = landing.layout
    for batch in range(4):
        landing.land(batch, range(batch * 10, batch * 10 + 10))
    assert compact_table(layout.landed) == (4, 1)
    where = parse("uuid in ('u3', 'u17')")
    assert count(layout, where) == (2, 1)
    number = ask(layout, ASKED, where).number
    assert carry_out(layout, WINDOW) == 1
    assert Record(layout).rows(number) == 2
    left = [number for number in range(40) if number not in (3, 17)]
    assert landing.uuids() == sorted(f"u{number}" for number in left)
    remove_old_files(layout.landed)
    landing.land(4, range(50))
    assert landing.uuids() == sorted(f"u{number}" for number in [*left, *range(40, 50)])  # what was deleted stays away


def test_the_table_is_looked_into(landing: Landing) -> None:
    landing.land(0, range(10))
    layout = landing.layout
    row = find_uuid(layout.landed, table_of(layout).active(), "u7")
    assert row is not None
    assert row["offset"] == 7
    assert RowCounts(layout, TYPE).count() == {("event", "click"): 10}

"""Reading what Spark committed, and the journal of it."""

from __future__ import annotations

import os

import pytest

from penstock.landing.journal import Commit, CommitInProgress, Journal, read_journal, read_plan
from tests.spark.spark_helpers import HandWritten, landed_message


def three_batches(table: HandWritten) -> None:
    table.commit({"a": 2}, [landed_message(n, "a") for n in range(2)])
    table.commit({"a": 2, "b": 1}, [landed_message(0, "b")])
    table.commit({"a": 5, "b": 1}, [landed_message(n, "a") for n in range(2, 5)])


def test_ranges_follow_from_one_batch_to_the_next_and_a_new_topic_begins_at_zero(table: HandWritten) -> None:
    three_batches(table)
    ranges = {commit.batch: commit.ranges() for commit in Journal(table.layout).update()}
    assert ranges == {0: {"a": (0, 2)}, 1: {"b": (0, 1)}, 2: {"a": (2, 5)}}


def test_a_batch_that_is_planned_but_not_committed_is_not_there(table: HandWritten) -> None:
    three_batches(table)
    (table.layout.checkpoint / "commits" / "2").unlink()
    assert [commit.batch for commit in Journal(table.layout).update()] == [0, 1]


def test_a_batch_that_spark_took_for_done_waits_until_the_table_has_it(table: HandWritten) -> None:
    three_batches(table)
    for folder in ("offsets", "commits"):
        entries = table.layout.checkpoint / folder
        (entries / "3").write_text((entries / "2").read_text())
    journal = Journal(table.layout)
    assert [commit.batch for commit in journal.update()] == [0, 1, 2]
    table.commit({"a": 6}, [landed_message(5, "a")])
    (entered,) = journal.update()
    assert (entered.ranges(), len(entered.files)) == ({"a": (5, 6)}, 1)


def test_a_batch_whose_commit_is_under_way_is_not_entered_though_the_table_lists_it(table: HandWritten) -> None:
    three_batches(table)
    under_way = CommitInProgress()
    journal = Journal(table.layout, under_way)
    under_way.batch = 2
    assert [commit.batch for commit in journal.update()] == [0, 1]
    assert journal.update() == []
    under_way.batch = None
    assert [commit.batch for commit in journal.update()] == [2]


def test_a_plan_that_cannot_be_read_is_an_error_with_its_name(table: HandWritten) -> None:
    three_batches(table)
    (table.layout.checkpoint / "offsets" / "1").write_text("v1\n")
    with pytest.raises(ValueError, match="offsets/1"):
        read_plan(table.layout.checkpoint, 1)


def test_the_journal_keeps_what_spark_forgets(table: HandWritten) -> None:
    journal = Journal(table.layout)
    for n in range(6):
        table.commit({"a": n + 1}, [landed_message(n, "a")])
        journal.update()
        for folder in ("offsets", "commits"):
            (table.layout.checkpoint / folder / str(n - 1)).unlink(missing_ok=True)
    commits = list(read_journal(table.layout))
    assert [commit.ranges() for commit in commits] == [{"a": (n, n + 1)} for n in range(6)]
    assert [len(commit.files) for commit in commits] == [1] * 6


def test_the_journal_goes_on_where_it_was(table: HandWritten) -> None:
    three_batches(table)
    assert len(Journal(table.layout).update()) == 3
    table.commit({"a": 9}, [landed_message(n, "a") for n in range(5, 9)])
    again = Journal(table.layout)
    assert [commit.ranges() for commit in again.update()] == [{"a": (5, 9)}]
    assert again.update() == []


def test_batches_that_spark_forgot_before_they_were_entered_count_with_the_next_one(table: HandWritten) -> None:
    three_batches(table)
    Journal(table.layout).update()
    for n in (3, 4, 5):
        table.commit({"a": n + 3}, [landed_message(n + 2, "a")])
    for folder in ("offsets", "commits"):
        (table.layout.checkpoint / folder / "3").unlink()
    entered = Journal(table.layout).update()
    assert [commit.ranges() for commit in entered] == [{"a": (5, 7)}, {"a": (7, 8)}]
    assert [len(commit.files) for commit in entered] == [2, 1]


def test_a_torn_line_is_written_again(table: HandWritten) -> None:
    three_batches(table)
    Journal(table.layout).update()
    whole = table.layout.journal.read_bytes()
    for cut in (1, 30, len(whole.splitlines()[-1]) + 1):
        table.layout.journal.write_bytes(whole[:-cut])
        Journal(table.layout).update()
        assert table.layout.journal.read_bytes() == whole


def test_when_the_disk_is_full_nothing_is_entered_and_the_next_try_is_whole(
    table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_batches(table)
    journal = Journal(table.layout)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            journal.update()
    assert table.layout.journal.read_bytes() == b""
    assert [commit.batch for commit in journal.update()] == [0, 1, 2]


def test_a_commit_is_the_same_after_it_was_written_down() -> None:
    commit = Commit(4, {"a": 1}, {"a": 3}, 100, 50, ("x", "y"))
    assert Commit.from_document(commit.document()) == commit

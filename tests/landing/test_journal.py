"""Commits that Spark recorded, and their journal."""

from __future__ import annotations

import errno
import os

import pytest

from penstock.landing.journal import Commit, CommitInProgress, Journal, read_journal
from tests.spark.spark_helpers import HandWritten, landed_message


def three_batches(table: HandWritten) -> None:
    table.commit({"a": 2}, [landed_message(n, "a") for n in range(2)])
    table.commit({"a": 2, "b": 1}, [landed_message(0, "b")])
    table.commit({"a": 5, "b": 1}, [landed_message(n, "a") for n in range(2, 5)])


def test_ranges_continue_between_batches_and_begin_at_zero(table: HandWritten) -> None:
    three_batches(table)
    ranges = {commit.batch: commit.ranges() for commit in Journal(table.layout).update()}
    assert ranges == {0: {"a": (0, 2)}, 1: {"b": (0, 1)}, 2: {"a": (2, 5)}}


def test_planned_batch_is_not_in_journal(table: HandWritten) -> None:
    three_batches(table)
    (table.layout.checkpoint / "commits" / "2").unlink()
    assert [commit.batch for commit in Journal(table.layout).update()] == [0, 1]


def test_update_waits_until_the_table_has_the_batch(table: HandWritten) -> None:
    three_batches(table)
    for folder in ("offsets", "commits"):
        entries = table.layout.checkpoint / folder
        (entries / "3").write_text((entries / "2").read_text())
    journal = Journal(table.layout)
    assert [commit.batch for commit in journal.update()] == [0, 1, 2]
    table.commit({"a": 6}, [landed_message(5, "a")])
    (entered,) = journal.update()
    assert (entered.ranges(), len(entered.files)) == ({"a": (5, 6)}, 1)


def test_update_skips_commit_in_progress(table: HandWritten) -> None:
    three_batches(table)
    under_way = CommitInProgress()
    journal = Journal(table.layout, under_way)
    under_way.batch = 2
    assert [commit.batch for commit in journal.update()] == [0, 1]
    assert journal.update() == []
    under_way.batch = None
    assert [commit.batch for commit in journal.update()] == [2]


def test_journal_keeps_batches_that_spark_forgets(table: HandWritten) -> None:
    journal = Journal(table.layout)
    for n in range(6):
        table.commit({"a": n + 1}, [landed_message(n, "a")])
        journal.update()
        for folder in ("offsets", "commits"):
            (table.layout.checkpoint / folder / str(n - 1)).unlink(missing_ok=True)
    commits = list(read_journal(table.layout))
    assert [commit.ranges() for commit in commits] == [{"a": (n, n + 1)} for n in range(6)]
    assert [len(commit.files) for commit in commits] == [1] * 6


def test_reopened_journal_continues(table: HandWritten) -> None:
    three_batches(table)
    assert len(Journal(table.layout).update()) == 3
    table.commit({"a": 9}, [landed_message(n, "a") for n in range(5, 9)])
    reopened = Journal(table.layout)
    assert [commit.ranges() for commit in reopened.update()] == [{"a": (5, 9)}]
    assert reopened.update() == []


def test_forgotten_batches_are_added_to_the_next_one(table: HandWritten) -> None:
    three_batches(table)
    Journal(table.layout).update()
    for n in (3, 4, 5):
        table.commit({"a": n + 3}, [landed_message(n + 2, "a")])
    for folder in ("offsets", "commits"):
        (table.layout.checkpoint / folder / "3").unlink()
    entered = Journal(table.layout).update()
    assert [commit.ranges() for commit in entered] == [{"a": (5, 7)}, {"a": (7, 8)}]
    assert [len(commit.files) for commit in entered] == [2, 1]


def test_torn_line_is_written_again(table: HandWritten) -> None:
    three_batches(table)
    Journal(table.layout).update()
    whole = table.layout.journal.read_bytes()
    for cut in (1, 30, len(whole.splitlines()[-1]) + 1):
        table.layout.journal.write_bytes(whole[:-cut])
        Journal(table.layout).update()
        assert table.layout.journal.read_bytes() == whole


@pytest.mark.survives("landing from the log", "full disk")
@pytest.mark.survives("landing from the log", "failing disk")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "fsync"])
def test_update_on_a_full_or_failing_disk_enters_nothing(
    table: HandWritten, code: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_batches(table)
    journal = Journal(table.layout)

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match=os.strerror(code)):
            journal.update()
    assert table.layout.journal.read_bytes() == b""
    assert [commit.batch for commit in journal.update()] == [0, 1, 2]


def test_document_round_trips() -> None:
    commit = Commit(4, {"a": 1}, {"a": 3}, 100, 50, ("x", "y"))
    assert Commit.from_document(commit.document()) == commit

"""Proving and posting after each commit, with the real ledger."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.files.checked_document import read_document
from penstock.files.checked_lines import read_lines
from penstock.landing.history import read_sum, stretches
from penstock.proof.posts.ledger_client import LedgerClient
from penstock.proof.proofs import read_proofs
from penstock.spark.query import proof_worker as module
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from tests.spark.spark_daemon import Daemon, daemon
from tests.spark.spark_helpers import BUCKET, LANDED_AT, HandWritten, append, event, flip, landed_event, landed_message

PLACE = ("events-udp", BUCKET)


@pytest.fixture
def landing(topics: Path, table: HandWritten) -> Landing:
    append(topics, "t", [event(1), b"x", event(1)])
    table.commit({"t": 2}, [landed_event(0, "u1"), landed_message(1)])
    return Landing(topics, table.layout.tables)


def make(landing: Landing, running: Daemon | None = None) -> ProofWorker:
    client = LedgerClient(running.http) if running else None
    return ProofWorker(landing, client)


def test_each_commit_is_proved_stored_and_posted(tmp_path: Path, landing: Landing, table: HandWritten) -> None:
    with daemon(tmp_path) as running:
        worker = make(landing, running)
        assert worker.step()
        table.commit({"t": 3}, [])
        assert worker.step()
        assert running.ledger.landed()["t"].counts == {PLACE: {"landed.event": 1, "landed.message": 1, "duplicate": 1}}
        assert running.ledger.landed()["t"].through == 3
        assert running.ledger.balance().unaccounted == 0
    assert [proofs[0].batch for proofs in read_proofs(landing.layout)] == [0, 1]
    assert (worker.progress.batch, worker.progress.rows, worker.progress.duplicates) == (1, 3, 1)


def test_restart_proves_unproved_batches_and_finds_earlier_duplicates(landing: Landing, table: HandWritten) -> None:
    assert make(landing).step()
    table.commit({"t": 3}, [])
    restarted = make(landing)
    assert restarted.step()
    assert (restarted.progress.batch, restarted.progress.rows, restarted.progress.unaccounted) == (1, 1, 0)


@pytest.mark.survives("landing from the log", "peer away")
def test_proofs_are_stored_while_the_daemon_is_unavailable_and_posted_later(
    tmp_path: Path, landing: Landing, table: HandWritten, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.spark")
    with daemon(tmp_path) as running:
        http = running.http
    worker = ProofWorker(landing, LedgerClient(http))
    assert not worker.step()
    table.commit({"t": 3}, [])
    worker._next_try = 0.0
    assert not worker.step()
    assert len(list(read_proofs(landing.layout))) == 2
    waits = [line for line in caplog.messages if line.startswith("proofs are delayed")]
    assert len(waits) == 1, "one line while it stays away for the same reason"
    with daemon(tmp_path, http) as running:
        worker._next_try = 0.0
        assert worker.step()
        assert running.ledger.landed()["t"].through == 3
    assert "proofs continue" in caplog.messages


def test_lost_ledger_receives_all_proofs_again(tmp_path: Path, landing: Landing) -> None:
    with daemon(tmp_path) as running:
        assert make(landing, running).step()
    for path in (tmp_path / "topics" / "_ledger").iterdir():
        path.unlink()
    with daemon(tmp_path) as running:
        assert make(landing, running).step()
        assert running.ledger.landed()["t"].through == 2


@pytest.mark.parametrize("has_new_batch", [False, True])
def test_ledger_that_is_lost_between_two_calls_receives_all_proofs_again(
    tmp_path: Path, landing: Landing, table: HandWritten, has_new_batch: bool
) -> None:
    with daemon(tmp_path) as running:
        http = running.http
        worker = make(landing, running)
        assert worker.step()
    for path in (tmp_path / "topics" / "_ledger").iterdir():
        path.unlink()
    with daemon(tmp_path, http) as running:
        if has_new_batch:
            table.commit({"t": 3}, [])
            assert not worker.step(), "the ledger refuses a post that would hide the loss"
            worker._next_try = 0.0
            assert worker.step()
            assert running.ledger.landed()["t"].counts == {
                PLACE: {"landed.event": 1, "landed.message": 1, "duplicate": 1}
            }
            return
        worker._next_publication = 0.0
        assert worker.step()
        assert worker.step()
        assert running.ledger.landed()["t"].through == 2


def test_corrupt_batch_is_recorded_as_a_gap(tmp_path: Path, topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"one"], [b"damaged"])
    table.commit({"t": 2}, [landed_message(0)])
    with daemon(tmp_path) as running:
        flip(topics, "t", b"damaged")
        assert make(Landing(topics, table.layout.tables), running).step()
        assert running.ledger.landed()["t"].counts[PLACE] == {"landed.message": 1, "gap.corrupt": 1}


def test_unaccounted_rows_are_logged_and_do_not_stop_later_batches(
    landing: Landing, table: HandWritten, caplog: pytest.LogCaptureFixture
) -> None:
    table.commit({"t": 3}, [landed_event(2, "u1"), landed_message(9)])
    table.commit({"t": 4}, [])
    worker = make(landing)
    assert worker.step()
    assert worker.progress.unaccounted == 1
    assert caplog.messages == [
        "batch 1, topic t, offsets 2 to 3: 1 not of this batch, or duplicate (9)",
        "batch 2, topic t, offsets 3 to 4: 1 unaccounted (3)",
    ]


def test_torn_proof_is_repeated(landing: Landing, table: HandWritten) -> None:
    assert make(landing).step()
    proofs = landing.layout.proofs
    complete = list(read_lines(proofs, dict))
    proofs.write_bytes(proofs.read_bytes()[:-20])
    assert make(landing).step()
    assert list(read_lines(proofs, dict)) == complete != []


@pytest.mark.survives("ledger", "full disk")
def test_full_disk_is_logged_and_retried(
    landing: Landing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make(landing)
    real: Callable[[int], None] = os.fsync

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert not worker._step_safely()
    assert "No space" in caplog.messages[0]
    monkeypatch.setattr(os, "fsync", real)
    worker._next_try = 0.0
    assert worker._step_safely()
    assert worker.progress.rows == 2


def test_unwritable_counts_of_violations_stop_no_proof(
    landing: Landing, table: HandWritten, caplog: pytest.LogCaptureFixture
) -> None:
    table.commit({"t": 3}, [], violations={"contract.t.rule": 2})
    path = landing.layout.contracts
    path.mkdir()
    worker = make(landing)
    assert worker.step()
    assert worker.step()
    assert worker.progress.rows == 3
    assert len(caplog.messages) == 1
    assert "the counts of contract violations cannot be written" in caplog.messages[0]
    path.rmdir()
    assert worker.step()
    assert read_document(path)["violations"] == {"contract.t.rule": 2}


def test_thread_follows_commits_and_stops_when_all_are_proved(landing: Landing, table: HandWritten) -> None:
    worker = make(landing)
    worker.start()
    table.commit({"t": 3}, [])
    assert worker.stop(20)
    assert worker.progress.batch == 1


def test_pauses_grow_to_a_limit(landing: Landing) -> None:
    worker = make(landing)
    for _ in range(20):
        worker._wait("away")
    assert worker._pause == module.MAX_PAUSE_S


def test_duplicate_of_a_row_from_before_a_restart_is_found(landing: Landing, table: HandWritten) -> None:
    """The log went on while the pipeline did not run: by its timestamps the two are close together."""
    assert make(landing).step()
    table.commit({"t": 3}, [], LANDED_AT + 7_200_000)
    restarted = make(landing)
    assert restarted.step()
    assert (restarted.progress.duplicates, restarted.progress.unaccounted) == (1, 0)


def test_duplicate_of_a_rolled_up_row_is_found_in_the_table(
    landing: Landing, table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROLL_AT", 3)
    monkeypatch.setattr(module, "KEEP", 1)
    for end in (2, 2, 2):
        table.commit({"t": end}, [])
    assert make(landing).step()
    assert [(message.first, message.batch) for message in stretches(landing.layout)] == [(0, 2)]
    table.commit({"t": 3}, [])
    restarted = make(landing)
    assert restarted.step()
    assert (restarted.progress.duplicates, restarted.progress.unaccounted) == (1, 0)


def test_lost_ledger_receives_rolled_up_proofs(
    tmp_path: Path, landing: Landing, table: HandWritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROLL_AT", 3)
    monkeypatch.setattr(module, "KEEP", 1)
    for end in (3, 3, 3):
        table.commit({"t": end}, [])
    with daemon(tmp_path) as running:
        assert make(landing, running).step()
    assert read_sum(landing.layout).batch == 2
    for path in (tmp_path / "topics" / "_ledger").iterdir():
        path.unlink()
    with daemon(tmp_path) as running:
        assert make(landing, running).step()
        (topic,) = running.ledger.balance().topics
        assert topic.fates == {"landed.event": 1, "landed.message": 1, "duplicate": 1}
        assert running.ledger.balance().unaccounted == 0

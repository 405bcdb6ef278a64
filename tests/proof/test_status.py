"""The pipeline's status, read from files only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.counts import Counts
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.landing_lock import acquire_landing_lock
from penstock.landing.topics.from_flight import FlightStore
from penstock.proof.proofs import Proof, write_proofs
from penstock.proof.status import status
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.testing.processes import stopped
from penstock.upkeep.repair.checkpoint_rebuild import CheckpointLost, rebuild_checkpoint
from tests.cli.command_line import run
from tests.spark.spark_flight import served
from tests.spark.spark_helpers import HandWritten, append, event, landed_event, landed_message


def test_lag_counts_waiting_rows_and_their_seconds(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [event(1), b"x", event(1)], [b"waits", b"too"])
    append(topics, "other", [b"unread"])
    table.commit({"t": 3}, [landed_event(0, "u1"), landed_message(1)])
    assert ProofWorker(Landing(topics, table.layout.tables), None).step()
    state = status(topics, table.layout, ["t"])
    (topic_status,) = state.topics
    assert (topic_status.end, topic_status.landed, topic_status.proved, topic_status.lag_rows) == (5, 3, 3, 2)
    assert 0 < topic_status.lag < 60
    assert (state.rows, state.duplicates, state.unaccounted, state.last_batch) == (3, 1, 0, 0)
    assert [topic.topic for topic in status(topics, table.layout, ["*"]).topics] == ["other", "t"]


def test_rows_are_messages_without_the_offsets_of_kafka_that_show_none(topics: Path, table: HandWritten) -> None:
    counts = Counts(
        {
            "landed.event": 2,
            "quarantined.bad_json": 1,
            "duplicate": 1,
            "transformed.redacted": 1,
            "not_a_message.control": 10,
            "not_a_message.aborted": 30,
            "compacted": 7,
            "gap.expired_before": 5,
            "gap.absent": 3,
        }
    )
    proof = Proof(0, "t", 0, 60, {("kafka", 60): counts}, unaccounted=[59])
    assert proof.rows == 5
    table.layout.proofs.parent.mkdir(parents=True)
    write_proofs(table.layout, 0, [proof])
    state = status(topics, table.layout, ["t"])
    assert (state.rows, state.quarantined, state.duplicates, state.unaccounted) == (5, 1, 1, 1)


def test_status_over_flight_equals_status_of_folder(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"x"] * 5)
    table.commit({"t": 3}, [landed_message(n) for n in range(3)])
    folder = status(topics, table.layout, ["*"], now=2e9)
    with served(topics) as server:
        store = FlightStore(DaemonConnection(server.address))
        assert status(store, table.layout, ["*"], now=2e9) == folder
    assert (folder.topics[0].end, folder.topics[0].lag_rows) == (5, 5)


def test_rate_covers_last_minute(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"x"] * 120)
    table.commit({"t": 60}, [landed_message(n) for n in range(60)], landed_at=1_000_000)
    table.commit({"t": 120}, [landed_message(n) for n in range(60, 120)], landed_at=1_090_000)
    assert ProofWorker(Landing(topics, table.layout.tables), None).step()
    state = status(topics, table.layout, ["t"], now=1_100.0)
    assert (state.rate, state.last_batch_age) == (1.0, 10.0)


def test_all_rows_wait_before_first_run(topics: Path, table: HandWritten) -> None:
    append(topics, "t", [b"x"])
    state = status(topics, table.layout, ["*"])
    assert (state.running, state.last_batch, state.last_batch_age, state.topics[0].lag_rows) == (False, -1, None, 1)


def test_lost_checkpoint_and_journal_are_reported_with_what_is_proved(
    topics: Path, table: HandWritten, tmp_path: Path
) -> None:
    append(topics, "t", [b"x"] * 3)
    table.commit({"t": 2}, [landed_message(0), landed_message(1)])
    assert ProofWorker(Landing(topics, table.layout.tables), None).step()
    shutil.rmtree(table.layout.checkpoint)
    assert status(topics, table.layout, ["t"]).problem == "", "the journal is enough"
    table.layout.journal.unlink()
    state = status(topics, table.layout, ["t"])
    (topic,) = state.topics
    assert (state.last_batch, state.last_batch_age, topic.landed, topic.proved, topic.lag_rows) == (0, None, 2, 2, 1)
    with pytest.raises(CheckpointLost) as refused:
        rebuild_checkpoint(table.layout)
    for text in (state.problem, str(refused.value)):
        assert "has batches up to 0, " in text
        assert all(str(path) in text for path in (table.layout.checkpoint, table.layout.journal))
    (tmp_path / "penstock.toml").write_text(f"data_dir = '{tmp_path}'\npipeline.tables = '{table.layout.tables}'")
    shown = run("pipeline", "status", folder=tmp_path)
    assert shown.output.splitlines()[:2] == ["not running, last batch 0, 0.0 rows/s", state.problem], shown.text


HOLD_LOCK = """
import sys, threading
from penstock.landing.landing_lock import acquire_landing_lock
from penstock.landing.table_paths import Layout
acquire_landing_lock(Layout.for_tables(sys.argv[1]), threading.Event())
print("held", flush=True)
sys.stdin.read()
"""


def test_stopped_pipeline_is_reported(topics: Path, table: HandWritten, tmp_path: Path) -> None:
    table.layout.lock.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", HOLD_LOCK, str(table.layout.tables)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        assert status(topics, table.layout, ["*"]).stopped_pid == 0
        with stopped(process.pid):
            assert status(topics, table.layout, ["*"]).stopped_pid == process.pid
            (tmp_path / "penstock.toml").write_text(
                f"data_dir = '{tmp_path}'\npipeline.tables = '{table.layout.tables}'"
            )
            shown = run("pipeline", "status", folder=tmp_path)
        assert shown.output.startswith(f"stopped (continue it: kill -CONT {process.pid})"), shown.text


def test_landing_lock_shows_that_pipeline_runs(topics: Path, table: HandWritten) -> None:
    handle = acquire_landing_lock(table.layout, threading.Event())
    assert status(topics, table.layout, ["*"]).running
    os.close(handle)
    assert not status(topics, table.layout, ["*"]).running

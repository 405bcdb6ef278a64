"""The pipeline as a process: killed, started again, stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

import duckdb
import pytest

from bench.sustained import events
from penstock.config import load
from penstock.counts import Origin
from penstock.handover.landing_failure import read_landing_failure
from penstock.kafka.broker import Broker
from penstock.kafka.errors import KafkaAway
from penstock.landing import landing_lock
from penstock.landing.journal import read_journal
from penstock.landing.landing_lock import PipelineRunning, acquire_landing_lock, landing_process
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import as_written
from penstock.landing.table_paths import Layout
from penstock.landing.transform.rules import BadTransform, TransformRules
from penstock.process.kernel import descendants
from penstock.proof.evidence import read_rows
from penstock.proof.proofs import read_proofs
from penstock.proof.prover import rebuild
from penstock.spark import pipeline
from penstock.spark.pipeline import KAFKA_AWAY, landing_of, main, run, wait_until_useful
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.testing import wait_until
from penstock.testing.processes import anonymous
from penstock.upkeep.believed_clock import BelievedClock
from tests.conftest import QUICK_JAVA
from tests.landing.transform import functions
from tests.small_disk import small_file_system
from tests.spark.spark_daemon import Daemon, daemon
from tests.spark.spark_helpers import BUCKET, event
from tests.spark.spark_helpers import append as append_to_folder

PATIENCE = 200.0


wait_for = partial(wait_until, seconds=PATIENCE)


def java_process(pid: int) -> int:
    """Return the process of Spark's JVM below the pipeline."""
    below = []
    for child in descendants(pid):
        # A short-lived child of the start may end between the two reads.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            below += [child] * (Path(f"/proc/{child}/comm").read_text() == "java\n")
    (java,) = below
    return java


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path) as rows:
        yield rows


def start(
    data: Path,
    http: str,
    *options: str,
    stderr: IO[str] | int = subprocess.PIPE,
    program: tuple[str, ...] = ("-m", "penstock.spark.pipeline"),
    python: Path | str = sys.executable,
) -> subprocess.Popen[str]:
    command = [python, *program, "-o", f"data_dir={data}", "-o", f"log.http={http}"]
    settings = ["-o", "pipeline.spark.driver.memory=1g", "-o", "pipeline.target_lag=200ms"]
    return subprocess.Popen([*command, *settings, *options], stderr=stderr, text=True, cwd=data)


def append(log: Daemon, first: int, count: int) -> None:
    """Return events with new uuids: one repeated, one for the transformation to drop, one broken."""
    from penstock.records import body

    payloads = [*(event(first + n) for n in range(count)), event(first), event(first, "debug"), b"{broken"]
    counts = dict.fromkeys(("taken", "unboxed", "seen", "accepted"), len(payloads))
    origin = Origin("events-udp", BUCKET, BUCKET * 1_000_000, BUCKET * 1_000_000, "plog", counts)
    log.log.topic("t", create=True).append(body(payloads), origin).result(20)


def proved_to(layout: Layout) -> int:
    return max((proof.end for proofs in read_proofs(layout) for proof in proofs), default=0)


@pytest.mark.survives("landing from the log", "SIGKILL")
@pytest.mark.spark
def test_pipeline_killed_in_a_batch_continues_exactly_and_stops_cleanly(tmp_path: Path, running: Daemon) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    (tmp_path / "own_rows.py").write_text(Path(functions.__file__).read_text())
    export = f"export=[{{name='copy', to='duckdb:{tmp_path}/copy.duckdb'}}]"
    transform = ("-o", "pipeline.transform=own_rows:drop_debug", "-o", export)
    append(running, 0, 500)
    killed = start(tmp_path, running.http, *transform)
    wait_for(lambda: proved_to(layout) == 503)
    children = descendants(killed.pid)
    append(running, 1000, 500)
    wait_for(lambda: (layout.checkpoint / "offsets" / "1").exists())
    killed.kill()
    killed.wait()
    assert children, "a JVM was running"
    append(running, 2000, 500)

    restarted = start(tmp_path, running.http, *transform)
    wait_for(lambda: running.ledger.landed()["t"].through == 1509)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children), "the JVM did not outlive its driver"
    restarted.send_signal(signal.SIGTERM)
    log_text = restarted.communicate(timeout=60)[1]
    assert restarted.returncode == 0, log_text
    assert "ERROR" not in log_text, "it came to rest before it was stopped"

    rows = read_rows(layout.landed, as_written(name for commit in read_journal(layout) for name in commit.files))
    offsets = rows["offset"].to_pylist()
    assert len(offsets) == len(set(offsets)) == 1506
    proofs = [proof for proofs in read_proofs(layout) for proof in proofs]
    assert all(proof.holds for proof in proofs)
    assert running.ledger.balance().unaccounted == 0
    counts = running.ledger.landed()["t"].counts["events-udp", BUCKET]
    assert counts == {"landed.event": 1500, "quarantined.bad_json": 3, "duplicate": 3, "transformed.dropped": 3}
    assert list(rebuild(tmp_path / "topics", layout)) == proofs
    on_disk = {str(p.relative_to(layout.landed)) for p in layout.landed.rglob("*.parquet")}
    assert on_disk == {name for commit in read_journal(layout) for name in commit.files}, "no file of a lost batch"
    with duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as connection:
        copied = connection.execute("select count(*), count(distinct uuid) from events").fetchall()
    assert copied == [(1500, 1500)], "the export has all rows once the pipeline has ended"


SOAK_EVENTS, EVENTS_PER_APPEND = 4_000_000, 20_000
MEMORY_NOISE = 96 << 20
"""Bytes by which the memory of a process varies from batch to batch."""


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_memory_is_flat_over_millions_of_events(tmp_path: Path, running: Daemon) -> None:
    layout = Layout.for_tables(tmp_path / "tables")
    topic = running.log.topic("t", create=True)
    pipeline_process = start(tmp_path, running.http, stderr=subprocess.DEVNULL)
    samples: list[tuple[int, int, int]] = []
    try:
        while proved_to(layout) < SOAK_EVENTS:
            if topic.end < SOAK_EVENTS and topic.end - proved_to(layout) < 10 * EVENTS_PER_APPEND:
                topic.append(events(topic.end, EVENTS_PER_APPEND), Origin("s", BUCKET, 1, 1)).result(60)
            elif proved_to(layout):
                java = java_process(pipeline_process.pid)
                samples.append((proved_to(layout), anonymous(pipeline_process.pid), anonymous(java)))
                time.sleep(1)
    finally:
        pipeline_process.terminate()
        pipeline_process.wait(60)
    for process in (1, 2):
        second, last = (
            max(sample[process] for sample in samples if begin < 4 * sample[0] / SOAK_EVENTS <= begin + 1)
            for begin in (1, 3)
        )
        assert last <= second + MEMORY_NOISE, samples[:: max(1, len(samples) // 20)]


@pytest.mark.spark
def test_replaced_log_is_named_once_in_the_output_and_in_the_status(tmp_path: Path) -> None:
    options = ("--once", "--no-ledger")
    append_to_folder(tmp_path / "topics", "t", [b"text"] * 20)
    first = start(tmp_path, "127.0.0.1:1", *options)
    assert "20 rows" in first.communicate(timeout=120)[1]
    shutil.rmtree(tmp_path / "topics")
    append_to_folder(tmp_path / "topics", "t", [b"other"] * 30)
    second = start(tmp_path, "127.0.0.1:1", *options)
    log_text = second.communicate(timeout=120)[1]
    assert (second.returncode, log_text.count("topic t of the log begins again: offset 19 landed")) == (1, 1), log_text
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "status", "-o", f"data_dir={tmp_path}"]
    status = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "topic t of the log begins again: offset 19 landed" in status.stdout, status
    assert 'next: see "Topics that begin again"' in status.stdout


def test_second_pipeline_is_refused(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    held = acquire_landing_lock(layout, threading.Event())
    with pytest.raises(PipelineRunning, match="another pipeline"):
        acquire_landing_lock(layout, threading.Event(), patience=0.0)
    os.close(held)
    os.close(acquire_landing_lock(layout, threading.Event(), patience=0.0))


def test_process_with_the_lock_is_not_that_of_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.for_tables(tmp_path)
    assert landing_process(layout) == 0
    held = acquire_landing_lock(layout, threading.Event())
    assert landing_process(layout) == os.getpid()
    line = f"1: FLOCK  ADVISORY  WRITE 7 ff:ff:{layout.lock.stat().st_ino} 0 EOF\n"
    monkeypatch.setattr(landing_lock, "LOCKS", tmp_path / "locks")
    landing_lock.LOCKS.write_text(line + Path("/proc/locks").read_text())
    assert landing_process(layout) == os.getpid()
    landing_lock.LOCKS.write_text(line)
    assert landing_process(layout) == 0
    os.close(held)


def test_pipeline_waits_for_the_lock(tmp_path: Path) -> None:
    layout = Layout.for_tables(tmp_path)
    held = acquire_landing_lock(layout, threading.Event())
    threading.Timer(0.5, os.close, [held]).start()
    later = acquire_landing_lock(layout, threading.Event(), patience=20.0)
    with pytest.raises(BlockingIOError), open(layout.lock) as second:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(later)


def test_wait_for_the_lock_can_be_stopped(tmp_path: Path) -> None:
    layout, stop = Layout.for_tables(tmp_path), threading.Event()
    held = acquire_landing_lock(layout, stop)
    stop.set()
    with pytest.raises(PipelineRunning):
        acquire_landing_lock(layout, stop, patience=60.0)
    os.close(held)


def test_lock_is_held_while_a_thread_has_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, layout = threading.Event(), Layout.for_tables(tmp_path / "tables")
    monkeypatch.setattr(pipeline, "SHUTDOWN_TIMEOUT_S", 0.1)
    lock = contextlib.ExitStack()
    lock.callback(os.close, acquire_landing_lock(layout, threading.Event()))
    began = threading.Event()

    def step(_: ProofWorker) -> bool:
        began.set()
        return go_on.wait(60)

    monkeypatch.setattr(ProofWorker, "step", step)
    landing = Landing(tmp_path / "topics", layout.tables)
    with lock, pipeline._background_work(landing, None, BelievedClock(layout, None), lock):
        assert began.wait(20)
    with pytest.raises(PipelineRunning):
        acquire_landing_lock(layout, threading.Event(), patience=0.0)
    go_on.set()


def test_configuration_decides_what_lands(tmp_path: Path) -> None:
    settings = load(None, [f"data_dir={tmp_path}", "pipeline.topics=['a','b.*']", "pipeline.duplicate_window=5m"], {})
    landing = landing_of(settings)
    assert (landing.topics, landing.tables, landing.topic) == (tmp_path / "topics", tmp_path / "tables", "a,b.*")
    assert (landing.duplicate_window, landing.window) == (300.0, 300_000_000)


def test_pipeline_reads_the_configured_log_daemon(tmp_path: Path) -> None:
    tokens = 'security.tokens.spark = {token = "sixteen letters at least", read = ["*"]}'
    options = [f"data_dir={tmp_path}", "pipeline.uri=127.0.0.1:8846"]
    plain, closed = (landing_of(load(None, options, {})) for options in (options, [*options, tokens]))
    named = landing_of(load(None, [*options, tokens, "pipeline.token=another one altogether"], {}))
    assert plain.log is not None
    assert (plain.log.address, plain.log.token, plain.log.tls) == ("127.0.0.1:8846", "", False)
    assert closed.log is not None
    assert closed.log.token == (tmp_path / "token").read_text()
    assert named.log is not None
    assert named.log.token == "another one altogether"
    assert "another" not in repr(named)


def test_bad_configuration_is_refused_with_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "pipeline.tabels=x"]) == 2
    assert "pipeline.tabels" in capsys.readouterr().err
    kafka = ["pipeline.source=kafka", "pipeline.kafka.bootstrap.servers=h:1", "pipeline.uri=h:1"]
    assert main([part for override in kafka for part in ("-o", override)]) == 2
    assert 'uri is for source = "penstock"' in capsys.readouterr().err
    assert main(["-o", "pipeline.spark.master=sc://127.0.0.1:15002"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pipeline.spark" in line
    assert "is a Spark Connect server" in line


@pytest.mark.spark
def test_query_restarts_after_a_slow_python_worker(tmp_path: Path, running: Daemon) -> None:
    """Spark gives each of its Python processes ten seconds; here the first one of the stream takes eleven."""
    slow, once = tmp_path / "python", tmp_path / "once"
    wait = f'case "$*" in *source_runner*) [ -e "{once}" ] || {{ touch "{once}"; sleep 11; }} ;; esac'
    slow.write_text(f'#!/bin/sh\n{wait}\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    append(running, 0, 10)
    process = start(tmp_path, running.http, "--once", "-o", f"pipeline.spark.pyspark.python={slow}")
    log_text = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0, log_text
    assert "restarting the query" in log_text
    assert proved_to(Layout.for_tables(tmp_path / "tables")) == 13


STALLED = """
import sys, threading, time
from pathlib import Path
from penstock.spark import pipeline, stall_watch

pipeline.NOTE_INTERVAL_S = 0.2
take_state = pipeline.batch_state

def lose_patience():
    while not Path("impatient").exists():
        time.sleep(0.1)
    stall_watch.REPORT_AFTER_S, stall_watch.RESTART_AFTER_S = 3.0, 8.0

def stop_dispatcher(context, query, **options):
    if Path("stop_dispatcher").exists():
        for thread in context._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray():
            if thread.getName().startswith("dispatcher-"):
                thread.interrupt()
        Path("stop_dispatcher").unlink()
    return take_state(context, query, **options)

pipeline.batch_state = stop_dispatcher
threading.Thread(target=lose_patience, daemon=True).start()
sys.exit(pipeline.main(sys.argv[1:]))
"""
"""The pipeline, on request with little patience, and with Spark's threads that dispatch messages dead."""


@pytest.mark.survives("landing from the log", "SIGSTOP")
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_batch_without_progress_is_reported_and_ends_the_pipeline(tmp_path: Path, running: Daemon) -> None:
    """First its JVM is stopped, then Spark's dispatcher is dead; each start continues, the last one to the end."""
    layout = Layout.for_tables(tmp_path / "tables")
    impatient, dispatcher = tmp_path / "impatient", tmp_path / "stop_dispatcher"

    def begin(landed: int) -> tuple[subprocess.Popen[str], int]:
        impatient.unlink(missing_ok=True)
        process = start(tmp_path, running.http, program=("-c", STALLED))
        wait_for(lambda: proved_to(layout) == landed)
        return process, java_process(process.pid)

    def check_end(process: subprocess.Popen[str], java: int) -> None:
        impatient.touch()
        stderr = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 1, stderr
        assert "s Spark is ended and the pipeline starts again" in stderr, stderr
        assert "Spark is ended, so that the pipeline starts again" in stderr, stderr
        wait_for(lambda: not Path(f"/proc/{java}").exists())
        assert read_landing_failure(layout.failure) is not None

    append(running, 0, 10)
    process, java = begin(13)
    os.kill(java, signal.SIGSTOP)
    append(running, 1000, 10)
    check_end(process, java)

    process, java = begin(26)
    dispatcher.touch()
    append(running, 2000, 10)
    wait_for(lambda: not dispatcher.exists())
    append(running, 3000, 10)
    check_end(process, java)

    last = start(tmp_path, running.http, "--once")
    stderr = last.communicate(timeout=PATIENCE)[1]
    assert last.returncode == 0, stderr
    assert proved_to(layout) == 52
    assert read_landing_failure(layout.failure) is None


SLOW_COMMIT = """
import sys, threading, time
from pathlib import Path
from penstock.landing.table.delta_table import DeltaTable
from penstock.spark.pipeline import main

begun, go_on, real = Path("begun"), Path("go_on"), DeltaTable.commit

def slow(table, batch, files, *description):
    begun.touch()
    while not go_on.exists():
        time.sleep(0.05)
    real(table, batch, files, *description)

DeltaTable.commit = slow
status = main(sys.argv[1:])
Path("threads").write_text("\\n".join(thread.name for thread in threading.enumerate()))
sys.exit(status)
"""
"""The pipeline with a table that commits on request."""


@pytest.mark.spark
def test_lock_is_held_until_the_running_commit_ends_after_the_jvm_is_killed(tmp_path: Path, running: Daemon) -> None:
    append(running, 0, 10)
    layout = Layout.for_tables(tmp_path / "tables")
    process = start(tmp_path, running.http, program=("-c", SLOW_COMMIT))
    wait_for((tmp_path / "begun").exists)
    java = java_process(process.pid)
    os.kill(java, signal.SIGKILL)
    with pytest.raises(PipelineRunning):
        acquire_landing_lock(layout, threading.Event(), patience=3)
    (tmp_path / "go_on").touch()
    log_text = process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, "Java process has ended" in log_text.splitlines()[-1]) == (1, True), log_text
    remaining = set((tmp_path / "threads").read_text().split("\n"))
    assert not remaining & {"proof worker", "maintenance"}, "in native code they would crash when the interpreter ends"
    last = start(tmp_path, running.http, "--once")
    log_text = last.communicate(timeout=PATIENCE)[1]
    assert last.returncode == 0, log_text
    assert proved_to(layout) == 13
    assert sorted(read_rows(layout.landed, table_of(layout).active())["offset"].to_pylist()) == [*range(10), 12]


@pytest.mark.survives("landing from the log", "full disk")
@pytest.mark.spark
def test_pipeline_that_runs_alone_waits_while_the_disk_is_full_and_continues_by_itself(
    tmp_path: Path, running: Daemon
) -> None:
    with small_file_system(tmp_path / "tables", "64m") as tables, (tmp_path / "pipeline.log").open("w") as log:
        layout = Layout.for_tables(tables)
        append(running, 0, 500)
        alone = start(tmp_path, running.http, stderr=log, program=("-m", "penstock.cli.main", "pipeline", "run"))
        try:
            wait_for(lambda: proved_to(layout) == 503)
            with open(tables / "ballast", "ab", buffering=0) as ballast, contextlib.suppress(OSError):
                while ballast.write(bytes(4096)):
                    pass
            append(running, 1000, 500)
            message = "the pipeline waits for space on the disk, and starts again then; nothing is lost"
            wait_for(lambda: message in (tmp_path / "pipeline.log").read_text())
            assert alone.poll() is None
            (tables / "ballast").unlink()
            wait_for(lambda: proved_to(layout) == 1006)
            assert (tmp_path / "pipeline.log").read_text().count(message) == 1
        finally:
            alone.terminate()
            alone.wait(60)
        assert running.ledger.balance().unaccounted == 0


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        ("Kafka at 127.0.0.1:9 does not give the ids of topics: Local: Timed out", True),
        ("Traceback\npenstock.kafka.errors.KafkaAway: Kafka at k:9 does not give events/0: timed out\n at org", True),
        ("ValueError: Kafka at k:9", False),
        ("topic Kafka at t was deleted and created again", False),
    ],
)
def test_errors_of_brokers_that_do_not_answer_are_waited_for(error: str, passes: bool) -> None:
    assert bool(KAFKA_AWAY.search(error)) is passes


def test_pipeline_without_kafka_ends_with_lines_and_without_a_traceback(tmp_path: Path) -> None:
    nowhere = "127.0.0.1:1"
    kafka = ("-o", "pipeline.source=kafka", "-o", f"pipeline.kafka.bootstrap.servers={nowhere}")
    text = start(tmp_path, nowhere, *kafka, "--once").communicate(timeout=PATIENCE)[1]
    assert f"the landing query failed: Kafka at {nowhere} does not answer: " in text
    assert "Traceback" not in text


@pytest.mark.survives("landing from Kafka", "peer away")
def test_pipeline_waits_until_a_stopped_kafka_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.spark.pipeline.FEATURE_POLL_S", 0.1)
    monkeypatch.setattr("penstock.landing.from_kafka.partitions.ANSWER_TIMEOUT_S", 1.0)
    # A broker of its own: one that was stopped for long refuses requests for some seconds.
    with Broker(tmp_path / "broker", memory="256m", options=(QUICK_JAVA,)) as broker:
        kafka = ["pipeline.source=kafka", f"pipeline.kafka.bootstrap.servers={broker.address}"]
        settings = load(None, [f"data_dir={tmp_path}", *kafka])
        waiting = threading.Thread(target=wait_until_useful, args=(KafkaAway("away"), settings, threading.Event()))
        assert broker.pid
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            waiting.start()
            wait_for(lambda: "the pipeline waits for Kafka, and starts again then; nothing is lost" in caplog.messages)
            waiting.join(3)
            assert waiting.is_alive()
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        waiting.join(PATIENCE)
        assert not waiting.is_alive()


def test_bad_transformation_is_refused_before_the_start(tmp_path: Path) -> None:
    for rules, key in (
        (TransformRules("nowhere:f"), "transform = 'nowhere:f'"),
        (TransformRules(patterns=("(",)), "redact"),
    ):
        with pytest.raises(BadTransform, match=rf"^pipeline\.{key}"):
            run(Landing(tmp_path / "topics", tmp_path / "tables", transform=rules))
    assert not (tmp_path / "tables").exists()

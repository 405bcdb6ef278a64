"""A disk that cannot say whether an entry is stored: real clients repeat it, and acknowledged messages are stored."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.log import TopicReader
from penstock.testing.pipe import Pipe, free_ports, wait_until
from tests.debian_packages import install
from tests.system.test_http_clients import LISTENERS, Load, by_bulk, by_hec, by_json, by_otlp
from tests.system.test_kafka_clients import TOPIC, Sending

FAILURES = 20
"""System calls that fail, before the disk works again or the daemon is killed."""


@pytest.fixture(scope="module", autouse=True)
def strace() -> None:
    """Strace lets system calls fail."""
    if not shutil.which("strace"):
        install("strace")
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")


@contextmanager
def failing_disk(pipe: Pipe, output: Path) -> Iterator[None]:
    """Let syncs of the log daemon fail, and the removal of what was written: a crash may store it or not."""
    calls = "fdatasync,ftruncate"
    trace = ["-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO", "-o", str(output)]
    with subprocess.Popen(["strace", "-f", "-qq", *trace, "-p", str(pipe.pid("log daemon"))]) as tracer:
        try:
            wait_until(lambda: output.exists() and output.read_text().count("INJECTED") >= FAILURES, what="failures")
            yield
        finally:
            tracer.terminate()


@pytest.mark.survives("supervisor", "failing disk")
def test_supervisor_whose_files_fail_restarts_its_children_and_stops(tmp_path: Path) -> None:
    """Stopping was a traceback: the files of a run could not be removed from a disk that had become read-only."""
    pipe, output = Pipe(tmp_path), tmp_path / "trace"
    pipe.start()
    assert pipe.process is not None
    killed, calls = pipe.pid("receiver events-udp"), "rename,renameat,renameat2,unlink,unlinkat"
    trace = ["-e", f"trace={calls}", "-e", f"inject={calls}:error=EROFS", "-o", str(output)]
    with subprocess.Popen(["strace", "-qq", *trace, "-p", str(pipe.process.pid)], stderr=subprocess.PIPE) as tracer:
        try:
            wait_until(output.exists)
            os.kill(killed, signal.SIGKILL)
            pipe.datagrams(b'{"type": "a"}')
            wait_until(lambda: pipe.counts("events-udp")["accepted"] == 1)
            assert pipe.statistics("events-udp")["pid"] != killed
            wait_until(lambda: "INJECTED" in output.read_text())
            pipe.process.terminate()
            assert pipe.process.wait(60) == 0
        finally:
            tracer.terminate()
            pipe.stop()
    text = pipe.output.read_text()
    assert "Traceback" not in text, text
    assert "endpoints.json: cannot be removed: Read-only file system" in text
    pipe.start()
    assert (pipe.settled()["unaccounted"], pipe.counts("events-udp")["accepted"]) == (0, 1)
    pipe.stop()


def payloads(pipe: Pipe, topic: str) -> list[bytes]:
    batches = TopicReader(pipe.data_dir / "topics" / topic).read(0)
    return [payload for stored in batches for payload in stored.batch.column("payload").to_pylist()]


@pytest.mark.survives("Kafka protocol", "failing disk")
@pytest.mark.survives("requests", "failing disk")
@pytest.mark.parametrize("is_killed", [False, True])
def test_messages_in_doubt_are_repeated_and_each_is_stored(tmp_path: Path, is_killed: bool) -> None:
    (port,) = free_ports(1)
    pipe = Pipe(tmp_path, f"log.kafka=127.0.0.1:{port}")
    pipe.configure(LISTENERS.format(*free_ports(2)))
    pipe.start()
    try:
        senders = [Sending(f"127.0.0.1:{port}", name) for name in ("a", "b")]
        load = Load(pipe, [by_json, by_hec, by_bulk, by_otlp])
        for sender in senders:
            sender.start()
        for attempt in range(2):
            before = [len(sender.acknowledged) for sender in senders], len(load.acknowledged)
            wait_until(
                lambda before=before: (  # type: ignore[misc]
                    all(len(s.acknowledged) > n + 25 for s, n in zip(senders, before[0], strict=True))
                    and len(load.acknowledged) > before[1] + 4
                ),
                120,
                "messages of each come through",
            )
            with failing_disk(pipe, tmp_path / f"trace{attempt}"):
                if is_killed:
                    pipe.kill("log daemon")
            wait_until(pipe.answers, 120)
        acknowledged = load.end()
        for sender in senders:
            sender.end()
            assert not sender.failed, "Kafka's client repeats what is in doubt"
            assert len(sender.acknowledged) == sender.sent
        assert pipe.settled()["unaccounted"] == 0
        by_kafka = payloads(pipe, TOPIC)
        for sender in senders:
            texts = [text.decode() for text in by_kafka if text.startswith(sender.name.encode())]
            assert texts == [f"{sender.name} {number}" for number in range(sender.sent)], "once, in order"
        numbers = Counter(int(text.strip(b'"{}').rpartition(b":")[2]) for text in payloads(pipe, "events"))
        assert acknowledged <= numbers.keys(), "acknowledged, and lost"
    finally:
        pipe.stop()

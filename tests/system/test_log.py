"""The log daemon as a process: kills under load, a full disk, TLS and tokens."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from penstock.config import load
from penstock.config.daemon_access import Access
from penstock.counts import Name
from penstock.ledger.receipt import receipt
from penstock.slogd import slogd_pb2 as pb
from penstock.testing.pipe import Pipe, wait_until
from penstock.testing.processes import anonymous
from tests.server import certificates
from tests.server.stub import StructuredLogStub
from tests.small_disk import small_file_system

CALLERS, BATCH = 6, 5
SECONDS = 0.7
"""Between two kills."""
PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
QUICK = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]


class Caller(threading.Thread):
    """A producer that appends numbered batches, each repeated until it is answered."""

    def __init__(self, stub: StructuredLogStub, name: str, stopping: threading.Event) -> None:
        super().__init__(name=name)
        self._stub, self._stopping = stub, stopping
        self.offsets: list[list[int]] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            number = len(self.offsets)
            logs = [pb.LogEntry(raw_bytes=f"{self.name} {number} {index}".encode()) for index in range(BATCH)]
            request = pb.AppendRequest(topic="t", logs=logs, producer_id=self.name, sequence=number)
            self.offsets.append(list(self._append(request).offsets))

    def _append(self, request: pb.AppendRequest) -> pb.AppendResponse:
        while True:
            try:
                return self._stub.AppendLogs(request, timeout=30)
            except grpc.RpcError as error:
                if error.code() not in PASSING:
                    raise
                time.sleep(0.05)


def stored(stub: StructuredLogStub) -> list[pb.LogEntry]:
    logs: list[pb.LogEntry] = []
    while page := stub.GetLogs(pb.GetLogsRequest(topic="t", offset=len(logs)), timeout=30).logs:
        logs += page
    return logs


def kill_under_load(pipe: Pipe, rounds: int) -> None:
    """Kill the daemon under load: acknowledged entries are stored once at their offsets, without a gap."""
    stopping = threading.Event()
    with grpc.insecure_channel(pipe.grpc, QUICK) as channel:
        stub = StructuredLogStub(channel)
        callers = [Caller(stub, f"caller-{number}", stopping) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        for _ in range(rounds):
            before = sum(len(caller.offsets) for caller in callers)
            wait_until(
                lambda before=before: sum(len(c.offsets) for c in callers) > before + CALLERS, what="appends go on"
            )
            time.sleep(SECONDS)
            pipe.kill("log daemon")
        stopping.set()
        for caller in callers:
            caller.join(60)
        wait_until(pipe.answers)
        logs = stored(stub)
    assert [entry.offset for entry in logs] == list(range(len(logs)))
    stamps = [(entry.timestamp.seconds, entry.timestamp.nanos) for entry in logs]
    assert stamps == sorted(set(stamps))
    expected = {
        offset: f"{caller.name} {number} {index}"
        for caller in callers
        for number, offsets in enumerate(caller.offsets)
        for index, offset in enumerate(offsets)
    }
    assert {entry.offset: entry.raw_bytes.decode() for entry in logs} == expected


@pytest.mark.survives("log", "SIGKILL")
def test_acknowledged_entries_survive_kills_and_are_stored_once(pipe: Pipe) -> None:
    kill_under_load(pipe, 3)


@pytest.mark.soak
def test_fifty_kills(pipe: Pipe) -> None:
    kill_under_load(pipe, 50)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The topics, on a file system of their own."""
    with small_file_system(tmp_path / "data" / "topics", "4m") as topics:
        yield topics


@pytest.mark.survives("log", "full disk")
def test_reads_continue_on_a_full_disk_and_appends_resume_without_a_restart(small_disk: Path, tmp_path: Path) -> None:
    pipe = Pipe(tmp_path, "log.topic_defaults.segment_size_limit=256KiB")
    pipe.start()
    try:
        daemon = pipe.pid("log daemon")
        with grpc.insecure_channel(pipe.grpc) as channel:
            stub = StructuredLogStub(channel)
            small_disk.joinpath("ballast").write_bytes(b"x" * (1 << 20))
            count = fill(stub)
            assert len(stored(stub)) == count
            assert outcome(stub, b"x" * 100_000) == "RESOURCE_EXHAUSTED"
            small_disk.joinpath("ballast").unlink()
            wait_until(lambda: outcome(stub, b"x" * 1000) == "OK", what="appends work again")
            assert [entry.offset for entry in stored(stub)] == list(range(count + 1))
        assert pipe.pid("log daemon") == daemon
    finally:
        pipe.stop()


@pytest.mark.survives("alarms", "full disk")
def test_loss_on_a_full_disk_names_the_disk(small_disk: Path, tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    pipe.start()
    try:
        with open(small_disk / "ballast", "ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(bytes(1 << 16)):
                pass
        flood_until(pipe, lambda: "disk_full" in receipt(pipe.balance()).losses_by_reason())
        assert "not stored because the disk was full" in run(pipe, "balance")
        assert "the log cannot be written since" in run(pipe, "balance")
        doctor = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", "doctor", *pipe.options], capture_output=True, text=True
        )
        assert "larger buffer does not help" in doctor.stdout
        assert "buffer.term_length, or" not in doctor.stdout
        small_disk.joinpath("ballast").unlink()
        wait_until(lambda: receipt(pipe.balance()).parts["on_the_way"] == 0, what="the log is written again")
        assert set(receipt(pipe.balance()).losses_by_reason()) <= {"disk_full", Name.KERNEL_DROPPED}
    finally:
        pipe.stop()


def flood_until(pipe: Pipe, condition: Callable[[], bool]) -> None:
    """Send datagrams until a condition holds, which is asked after each 500."""
    for _ in range(200):
        pipe.datagrams(*[b"x" * 1000] * 500)
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the log buffer is never full")


def fill(stub: StructuredLogStub) -> int:
    """Append until the disk is full, and return the number of accepted entries."""
    count = 0
    while outcome(stub, b"x" * 100_000) == "OK":
        count += 1
        assert count < 100
    return count


def outcome(stub: StructuredLogStub, payload: bytes) -> str:
    try:
        stub.AppendLogs(pb.AppendRequest(topic="t", logs=[pb.LogEntry(raw_bytes=payload)]), timeout=30)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def run(pipe: Pipe, *command: str, lines: str = "") -> str:
    """Return the output of a command of the product."""
    called = [sys.executable, "-m", "penstock.cli.main", *command, *pipe.options]
    completed = subprocess.run(called, input=lines, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_commands_and_processes_connect_with_tls_and_tokens(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path, "log.example")
    pipe = Pipe(
        tmp_path,
        f"security.tls_cert={pair.cert}",
        f"security.tls_key={pair.key}",
        "security.tokens.reader.token=the secret of the reader",
        "security.tokens.reader.read=['*']",
    )
    pipe.overrides = [o.replace("log.http=127.0.0.1", "log.http=0.0.0.0") for o in pipe.overrides]
    access = Access(load(None, pipe.overrides, {}))
    pipe.start(wait=False)
    try:
        with access.client() as client:
            wait_until(lambda: answers(pipe, client), what=f"the daemon answers, see {pipe.output}")
        run(pipe, "produce", "t", lines="one\ntwo\n")
        assert "t" in run(pipe, "topics")
        assert run(pipe, "consume", "t", "--from", "earliest", "--format", "payload", "-n", "2") == "one\ntwo\n"
        assert json.loads(run(pipe, "balance", "--json"))["unaccounted"] == 0
        with grpc.insecure_channel(pipe.grpc) as channel:
            assert outcome(StructuredLogStub(channel), b"x") == "UNAVAILABLE"
    finally:
        pipe.stop()


def answers(pipe: Pipe, client: httpx.Client) -> bool:
    assert pipe.process
    assert pipe.process.poll() is None, pipe.output.read_text()
    with contextlib.suppress(httpx.TransportError):
        return client.get("/topics").is_success
    return False


@pytest.mark.parametrize(
    ("override", "error_text"),
    [
        ("log.grpc=0.0.0.0:0", "log.grpc: 0.0.0.0:0 is not loopback"),
        ("security.tls_cert=/nowhere.pem", "security: tls_cert and tls_key need each other"),
    ],
)
def test_insecure_configuration_does_not_start(tmp_path: Path, override: str, error_text: str) -> None:
    pipe = Pipe(tmp_path, override)
    called = [sys.executable, "-m", "penstock.cli.main", "serve", *pipe.options]
    completed = subprocess.run(called, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode != 0
    assert error_text in completed.stderr
    assert "Traceback" not in completed.stderr


def test_daemon_takes_little_memory(pipe: Pipe) -> None:
    """Anonymous memory when idle and with many topics written and read."""
    assert anonymous(pipe.pid("log daemon")) < 70 << 20
    with grpc.insecure_channel(pipe.grpc) as channel:
        stub = StructuredLogStub(channel)
        logs = [pb.LogEntry(raw_bytes=os.urandom(256)) for _ in range(100)]
        for number in range(200):
            stub.AppendLogs(pb.AppendRequest(topic=f"t{number}", logs=logs), timeout=30)
            stub.GetLogs(pb.GetLogsRequest(topic=f"t{number}"), timeout=30)
    assert anonymous(pipe.pid("log daemon")) < 150 << 20

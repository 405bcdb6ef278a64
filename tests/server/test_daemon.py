"""The log daemon as its supervisor starts it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import flight

from penstock.client import Log as Client
from penstock.client import Unavailable
from penstock.config import Settings
from penstock.config.keys.log import LogConfig
from penstock.counts import Origin
from penstock.files.checked_document import FORMAT, encode
from penstock.handover.drain.listener_drains import Drains
from penstock.handover.paths import LOG, RELAYS_FOLDER, buffer_file, position_file
from penstock.ledger.checkpoint_keeper import CheckpointKeeper
from penstock.log import Log
from penstock.records import body
from penstock.server import daemon
from penstock.server.alarms.watch import AlarmWatch
from penstock.testing.pipe import free_ports, wait_until
from tests.object_store import wait_for_port


@contextlib.contextmanager
def running_daemon(settings: Settings, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run the daemon of ``settings``, which listens on ``port``; it is killed at the end of the block."""
    command = [sys.executable, "-m", "penstock.server.daemon", str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"settings": settings.model_dump(mode="json"), "wakes": {}}))
            process.stdin.close()
            process.stdin = None
            wait_for_port(port)
            yield process
        finally:
            process.kill()


def newer(topics: Path) -> str:
    """Write a transaction of a later version."""
    data = encode({"format": FORMAT + 1, "places": {}})
    topics.joinpath("TRANSACTION-x.intent").write_bytes(data)
    return f"TRANSACTION-x.intent has format {FORMAT + 1}, this version of Penstock reads {FORMAT}"


@pytest.mark.parametrize("held", [True, False], ids=["open elsewhere", "of a later version"])
def test_unopenable_log_is_reported_in_one_line(tmp_path: Path, held: bool) -> None:
    settings = Settings(data_dir=tmp_path)
    log = Log(settings.topics)
    if not held:
        log.close()
    why = f"{settings.topics} is open in another process" if held else newer(settings.topics)
    task = json.dumps({"settings": settings.model_dump(mode="json"), "wakes": {}})
    command = [sys.executable, "-m", "penstock.server.daemon", str(os.getpid())]
    process = subprocess.run(command, input=task, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 1
    assert process.stderr.partition(" ")[2] == f"log daemon: the log in {settings.topics} cannot be opened: {why}\n"
    log.close()


def test_addresses_are_bound_before_log_buffers_are_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = Settings(data_dir=tmp_path, log=LogConfig(http=address, grpc="127.0.0.1:0"))
        settings.buffers.mkdir()
        # A drain reports damaged files as soon as it runs.
        for path in (buffer_file(settings.buffers, "in"), position_file(settings.buffers, "in", LOG)):
            path.write_bytes(b"damaged")
        task = json.dumps({"settings": settings.model_dump(mode="json"), "wakes": {}})
        command = [sys.executable, "-m", "penstock.server.daemon", str(os.getpid())]
        process = subprocess.run(command, input=task, capture_output=True, text=True, timeout=60, check=False)
    assert f"cannot listen on {address}" in process.stderr
    # The ledger, which only reads, may say that it does not count them.
    lines = [line for line in process.stderr.splitlines() if "are not counted" not in line]
    assert "log buffer" not in "\n".join(lines)


def test_daemon_without_an_id_refuses_relayed_entries_only(tmp_path: Path) -> None:
    # A folder that cannot be made, also by root: as on a full disk.
    (tmp_path / RELAYS_FOLDER).write_bytes(b"")
    (port,) = free_ports(1)
    settings = Settings(data_dir=tmp_path, log=LogConfig(http="127.0.0.1:0", grpc=f"127.0.0.1:{port}"))
    settings.buffers.mkdir()
    with running_daemon(settings, port) as process:
        with Client(f"127.0.0.1:{port}", retry_for=0) as log:
            rows, origin = body([b"a"]), Origin("web1/udp", 120, 121_000_000, 122_000_000, "plog")
            with pytest.raises(Unavailable, match=r"The server could not read or write relays/disk\.json"):
                log.append_batch("t", rows, ("p", 1), replace(origin, hops=("a/t",)))
            assert log.append_batch("t", rows, ("q", 1), origin) == [0]
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert "relayed entries are refused: the id of this data directory is missing: " in errors


def test_drains_stop_before_all_other_work_and_the_log_closes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    for owner, method in ((Drains, "stop"), (AlarmWatch, "stop"), (CheckpointKeeper, "stop"), (Log, "close")):
        note_end(monkeypatch, owner, method, ended)
    monkeypatch.setattr(daemon, "freeze_loaded_objects", lambda: os.kill(os.getpid(), signal.SIGTERM))
    settings = Settings(data_dir=tmp_path, log=LogConfig(http="127.0.0.1:0", grpc="127.0.0.1:0"))
    settings.buffers.mkdir()
    asyncio.run(daemon.run(settings, {}))
    assert ended == ["Drains", "AlarmWatch", "CheckpointKeeper", "Log"]


def note_end(patch: pytest.MonkeyPatch, owner: type, method: str, ended: list[str]) -> None:
    end = getattr(owner, method)

    def noted_end(self: object, *arguments: object) -> object:
        ended.append(owner.__name__)
        return end(self, *arguments)

    patch.setattr(owner, method, noted_end)


def test_daemon_ends_while_a_flight_stream_stalls(tmp_path: Path) -> None:
    grpc_port, flight_port = free_ports(2)
    addresses = {name: f"127.0.0.1:{port}" for name, port in (("grpc", grpc_port), ("flight", flight_port))}
    settings = Settings(data_dir=tmp_path, log=LogConfig(http="127.0.0.1:0", **addresses))
    settings.buffers.mkdir()
    with running_daemon(settings, flight_port) as process:
        with Client(addresses["grpc"], retry_for=0) as log:
            for _ in range(16):
                log.append("t", [b"x" * (1 << 20)])
        with flight.connect(f"grpc://{addresses['flight']}") as client:
            ticket = flight.Ticket(json.dumps({"topic": "t"}).encode())
            stalled = client.do_get(ticket)
            assert stalled.read_chunk()
            process.terminate()
            _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_daemon_ends_while_a_disk_that_hangs_holds_a_read(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = Settings(data_dir=tmp_path, log=LogConfig(http=f"127.0.0.1:{port}", grpc="127.0.0.1:0"))
    settings.buffers.mkdir()
    with running_daemon(settings, port) as process, contextlib.ExitStack() as opened:
        append = urllib.request.Request(f"http://127.0.0.1:{port}/topic/t/logs", b'{"logs":[{"raw_bytes":"YQ=="}]}')
        urllib.request.urlopen(append).close()
        (cursors := settings.topics / "t" / "cursors").mkdir()
        os.mkfifo(fifo := cursors / "reader.cursor")
        reader = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        reader.sendall(b"GET /topic/t/cursors HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        wait_until(lambda: hold_open(fifo, opened), 30, "the daemon reads")
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def hold_open(fifo: Path, opened: contextlib.ExitStack) -> bool:
    """Open the other end of a FIFO that is being read, whose reader then waits; report whether it is read."""
    try:
        descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    opened.callback(os.close, descriptor)
    return True

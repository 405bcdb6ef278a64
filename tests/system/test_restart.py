"""A running ``penstock serve`` is replaced by its successor without losing a datagram."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.client.send_many import DatagramBatch
from penstock.ingest.sockets import granted_buffer, request_buffer
from penstock.supervise.installation import Installation
from penstock.supervise.succession import read_step
from penstock.testing.pipe import Pipe, free_ports, wait_until
from tests.small_disk import small_file_system
from tests.system.virtual_environment import change_file, install, script_of

RATE = 50_000
"""Datagrams a second, on a machine that grants the buffer."""
BATCH = 500
PAYLOAD = b"x" * 200
BUFFER_BYTES = 256 << 20
BYTES_PER_DATAGRAM = 1280
"""What the kernel charges for a datagram of PAYLOAD, at most."""
PAUSE_S = 5.0
"""Longest time in which no receiver reads, on a machine that other tests keep busy."""


class SteadySender(threading.Thread):
    """Sends datagrams at a constant rate until stopped; ``sent`` counts them."""

    def __init__(self, address: tuple[str, int], rate: float) -> None:
        super().__init__()
        self._address, self._rate, self._stopping = address, rate, threading.Event()
        self._batch = DatagramBatch.from_datagrams([PAYLOAD] * max(min(BATCH, int(rate / 100)), 1))
        self.sent = 0

    def run(self) -> None:
        size = max(min(BATCH, int(self._rate / 100)), 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(self._address)
            next_at = time.monotonic()
            while not self._stopping.is_set():
                self._batch.send(sock)
                self.sent += size
                # A sender that a busy machine has paused does not send in one burst what it missed.
                next_at = max(next_at + size / self._rate, time.monotonic() - 0.05)
                self._stopping.wait(max(next_at - time.monotonic(), 0))

    def stop(self) -> int:
        """Stop, and return the number of sent datagrams."""
        self._stopping.set()
        self.join()
        return self.sent


def sustainable_rate() -> float:
    """Return the rate at which the kernel's buffer lasts for PAUSE_S; without CAP_NET_ADMIN it may be small."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request_buffer(sock, BUFFER_BYTES)
        return min(RATE, 2 * granted_buffer(sock) / BYTES_PER_DATAGRAM / PAUSE_S)


@pytest.mark.parametrize("step", ["trying", "changing the listeners"])
def test_request_to_stop_during_a_restart_is_not_lost(pipes: Callable[..., Pipe], step: str) -> None:
    pipe = pipes()
    assert pipe.process
    os.kill(pipe.process.pid, signal.SIGUSR2)
    wait_until(lambda: step in read_step(pipe.data_dir, 0), pause=0.001)
    pipe.process.terminate()
    assert pipe.process.wait(60) == 0


def restart(pipe: Pipe) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli.main", "restart", *pipe.options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)


@pytest.mark.survives("datagrams", "changed configuration")
def test_restart_under_load_loses_no_datagram(pipes: Callable[..., Pipe]) -> None:
    listener = "listener.events-udp"
    pipe = pipes(
        f"{listener}.so_rcvbuf={BUFFER_BYTES}",
        f"{listener}.codec=raw",
        "buffer.term_length=64MiB",
        "buffer.slots=1024",
    )
    before = pipe.endpoints()
    sender = SteadySender(pipe.address("events-udp"), sustainable_rate())
    sender.start()
    try:
        with socket.create_connection(pipe.address("events-tcp")) as connection:
            connection.sendall(b"before\nwithout a newline")
            wait_until(lambda: sender.sent, what="the sender is in motion")
            outcome = restart(pipe)
            assert (outcome.returncode, outcome.stdout) == (
                0,
                f"penstock is restarted, 4 sockets were kept open\nversion: as before, {Installation.current().text}\n",
            )
            # Accepted connections are read to the end, then closed.
            assert connection.recv(1) == b""
    finally:
        sent = sender.stop()
    after = pipe.endpoints()
    assert (after["supervisor"], after["listeners"]) == (before["supervisor"], before["listeners"])
    assert not set(after["pids"].values()) & set(before["pids"].values())
    wait_until(lambda: pipe.counts("events-udp")["taken"] >= sent, what="all datagrams are counted")
    pipe.settled()
    counts = pipe.counts("events-udp")
    assert (counts["taken"], counts["accepted"], counts["kernel_dropped"]) == (sent, sent, 0)
    assert pipe.counts("events-tcp")["accepted"] == 2


@pytest.mark.survives("datagrams", "changed configuration")
@pytest.mark.parametrize(
    ("command", "broken_module"),
    [("serve", "server/daemon.py"), ("up --no-spark", "console/main.py")],
    ids=["serve", "up"],
)
def test_restart_changes_to_the_installation_of_its_command(command: str, broken_module: str, tmp_path: Path) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    old, broken, new = (install(tmp_path / name, name) for name in ("old", "broken", "new"))
    change_file(broken, broken_module, "import missing_dependency")
    (console_port,) = free_ports(1)
    pipe = Pipe(tmp_path, "listener.events-udp.codec=raw", "log.flight=", f"console.http=127.0.0.1:{console_port}")
    with pipe.output.open("ab") as output:
        words = [script_of(old), *command.split(), *pipe.options]
        pipe.process = subprocess.Popen(words, stdout=output, stderr=output, env=environment, cwd=tmp_path)
    try:
        pipe.wait_ready()
        before = pipe.endpoints()
        sender = SteadySender(pipe.address("events-udp"), min(1000, sustainable_rate()))
        sender.start()
        try:
            wait_until(lambda: sender.sent, what="the sender is in motion")
            refused, outcome, again = (
                subprocess.run(
                    [script_of(package), "restart", *pipe.options],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=180,
                )
                for package in (broken, new, new)
            )
        finally:
            sent = sender.stop()
        python = tmp_path / "broken" / "bin" / "python"
        assert (refused.returncode, refused.stderr.splitlines()) == (
            2,
            [
                f"penstock: {python} does not start: ModuleNotFoundError: No module named 'missing_dependency'",
                "penstock: nothing is restarted; the previous processes continue",
            ],
        )
        assert (outcome.stderr, outcome.stdout.splitlines()) == (
            "",
            [
                "penstock is restarted, 4 sockets were kept open",
                f"version: old ({old}) was replaced by new ({new})",
            ],
        )
        assert again.stdout.splitlines()[1] == f"version: as before, new ({new})"
        after = pipe.endpoints()
        assert (after["supervisor"], after["listeners"]) == (before["supervisor"], before["listeners"])
        assert pipe.process
        for pid in (pipe.process.pid, after["supervisor"]):  # the others are forked
            assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(bytes(tmp_path / "new" / "bin"))
        wait_until(lambda: pipe.counts("events-udp")["taken"] >= sent, what="all datagrams are counted")
        assert pipe.counts("events-udp")["kernel_dropped"] == 0
    finally:
        pipe.stop()


def test_restart_refuses_a_version_that_cannot_take_over(tmp_path: Path) -> None:
    package = install(tmp_path / "environment", "2")
    pipe = Pipe(tmp_path, "log.flight=")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with pipe.output.open("ab") as output:
        words = [script_of(package), "serve", *pipe.options]
        pipe.process = subprocess.Popen(words, stdout=output, stderr=output, env=environment, cwd=tmp_path)
    try:
        pipe.wait_ready()
        before = pipe.endpoints()["pids"]
        # Version 0.2.0, installed in place, reports nothing of its rehearsal and ends with a key that it does not know.
        change_file(package, "supervise/succession.py", "    return\n    print(json", replaced="    print(json")
        refused = subprocess.run(
            [script_of(package), "restart", *pipe.options], env=environment, capture_output=True, text=True
        )
        python = tmp_path / "environment" / "bin" / "python"
        assert (refused.returncode, refused.stderr.splitlines()) == (
            2,
            [
                f"penstock: {python} runs a version that cannot take over the running processes: stop penstock and "
                "start it with the new installation",
                "penstock: nothing is restarted; the previous processes continue",
            ],
        )
        assert pipe.endpoints()["pids"] == before
    finally:
        pipe.stop()


def test_restart_of_up_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "disk", "80m") as disk:
        pipe = Pipe(disk, "log.flight=")
        pipe.command = ["up", "--no-spark", "--no-console"]
        pipe.start()
        try:
            before = pipe.endpoints()["pids"]
            with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
                while True:
                    ballast.write(bytes(4096))
            command = [sys.executable, "-m", "penstock.cli.main", "restart", *pipe.options]
            refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
            error = f"penstock: {pipe.data_dir}: No space left on device; the running penstock is unchanged\n"
            assert (refused.returncode, refused.stderr) == (1, error)
            assert pipe.endpoints()["pids"] == before
        finally:
            (disk / "ballast").unlink()
            pipe.stop()


def test_new_serve_that_dies_is_replaced_by_the_previous_version(tmp_path: Path) -> None:
    old, new = (install(tmp_path / name, name) for name in ("old", "new"))
    # After all that a trial runs.
    order = "        # Order: one receiver at a time"
    change_file(new, "supervise/supervisor.py", f"        os._exit(3)\n{order}", replaced=order)
    pipe = Pipe(tmp_path, "log.flight=")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with pipe.output.open("ab") as output:
        words = [script_of(old), "up", "--no-spark", "--no-console", *pipe.options]
        pipe.process = subprocess.Popen(words, stdout=output, stderr=output, env=environment, cwd=tmp_path)
    try:
        pipe.wait_ready()
        failed = subprocess.run(
            [script_of(new), "restart", *pipe.options], env=environment, capture_output=True, text=True
        )
        assert (failed.returncode, failed.stderr.splitlines()) == (
            2,
            [
                "penstock: the new listeners and log daemon did not start: serve ended with status 3",
                f"penstock: they are started again by version old ({old}); all other processes stay",
            ],
        )
        pipe.wait_ready()
        assert pipe.process
        for pid in (pipe.process.pid, pipe.endpoints()["supervisor"]):
            assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(bytes(tmp_path / "old" / "bin"))
    finally:
        pipe.stop()

"""A receiver that cannot start is named everywhere, refuses connections, and starts once the reason is gone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from penstock.testing.pipe import HTTP, Pipe, wait_until
from tests.server import certificates
from tests.small_disk import small_file_system
from tests.system.browser import browser
from tests.system.console_process import WAIT, opened, running_console

CONFIGURATION = """
buffer.term_length = "2MiB"
buffer.slots = 64
[[listener]]
name = "lines"
protocol = "tcp"
port = 0
max_line = "32KiB"
"""


def not_started(pipe: Pipe) -> dict[str, str]:
    return {entry["process"]: entry["text"] for entry in pipe.balance().get("not_started", ())}


def output(pipe: Pipe, *command: str) -> str:
    """Return the output of a command without its spaces and ends of lines, which depend on the length of paths."""
    run = [sys.executable, "-m", "penstock.cli.main", *command, *pipe.options]
    return "".join(subprocess.run(run, capture_output=True, text=True, timeout=120, check=False).stdout.split())


def assert_refused(pipe: Pipe) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(pipe.address("lines"))


def assert_takes_lines(pipe: Pipe) -> None:
    wait_until(lambda: not not_started(pipe), what="the receiver starts by itself")
    pipe.lines(b"one\ntwo\n", "lines")
    wait_until(lambda: pipe.counts("lines")["accepted"] == 2)
    assert pipe.settled()["unaccounted"] == 0


@contextlib.contextmanager
def pipe_on_a_full_disk(folder: Path) -> Iterator[tuple[Pipe, Path]]:
    """Yield a pipe that runs without room for the log buffer of its listener, and a file whose removal gives room."""
    with small_file_system(folder / "disk", "30m") as disk:
        pipe = Pipe(folder, "log.flight=", f"data_dir={disk}")
        pipe.data_dir = disk
        pipe.configure(CONFIGURATION)
        with (disk / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, shutil.disk_usage(disk).free - (5 << 20))
        pipe.start(wait=False)
        try:
            wait_until(pipe.answers)
            wait_until(lambda: not_started(pipe), what="the receiver is named")
            yield pipe, disk / "ballast"
        finally:
            pipe.stop()


@pytest.mark.survives("log buffer", "full disk")
def test_listener_whose_log_buffer_does_not_fit_is_named_everywhere_and_starts_with_space(tmp_path: Path) -> None:
    with pipe_on_a_full_disk(tmp_path) as (pipe, ballast):
        assert_refused(pipe)
        reason = (
            f"receiver lines cannot start in {pipe.data_dir}/buffers: no space left on device: its log buffer needs"
        )
        assert reason in not_started(pipe)["receiver lines"]
        assert "bytes more" in not_started(pipe)["receiver lines"]
        balance = output(pipe, "balance")
        assert balance.startswith("Nomessagehasarrivedyet;receiverlinescannotstart0sent")
        for text in (balance, output(pipe, "events"), output(pipe, "doctor"), output(pipe, "pipeline", "status")):
            assert reason.removeprefix("receiver ").replace(" ", "") in text, text
        gauge = 'penstock_process_not_started_seconds{process="receiver lines"}'
        assert gauge in HTTP.get(f"http://{pipe.http}/metrics").text
        wait_until(
            lambda: (
                "PenstockCannotStart"
                in {rule["alarm"] for rule in pipe.get("/alarms")["alarms"] if rule["state"] == "firing"}
            )
        )
        ballast.unlink()
        assert_takes_lines(pipe)
        assert "receiverlinescouldnotstartfor" in output(pipe, "events")


def test_console_shows_a_receiver_that_cannot_start_until_it_starts(tmp_path: Path) -> None:
    reason = "Receiver lines cannot start in"
    with (
        pipe_on_a_full_disk(tmp_path) as (pipe, ballast),
        running_console(pipe) as console,
        browser() as chromium,
    ):
        pages = [opened(chromium, console, path) for path in ("/", "/listeners")]
        for page, _ in pages:
            expect(page.locator(".state")).to_have_text("receiver lines cannot start", timeout=WAIT)
            expect(page.get_by_text(reason).first).to_contain_text("no space left on device", timeout=WAIT)
        ballast.unlink()
        assert_takes_lines(pipe)
        for page, wrong in pages:
            expect(page.locator(".state")).not_to_contain_text("cannot start", timeout=WAIT)
            expect(page.get_by_text(reason)).to_have_count(0, timeout=WAIT)
            assert wrong == []


def spoil_certificate(folder: Path) -> Callable[[], object]:
    (folder / "server.pem").rename(folder / "good")
    (folder / "server.pem").write_text("no certificate")
    return lambda: (folder / "good").replace(folder / "server.pem")


def replace_folder(folder: Path) -> Callable[[], object]:
    buffers = folder / "data" / "buffers"
    buffers.rename(folder / "away")
    buffers.write_text("")

    def restore() -> None:
        buffers.unlink()
        (folder / "away").rename(buffers)

    return restore


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pair = certificates.make(tmp_path, "server")
    pipe = Pipe(tmp_path, "log.flight=")
    pipe.configure(f'{CONFIGURATION}\ntls_cert = "{pair.cert}"\ntls_key = "{pair.key}"\n')
    pipe.start()
    yield pipe
    pipe.stop()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (spoil_certificate, "server.pem and .*server.key: "),
        (replace_folder, "lines.*: Not a directory"),
    ],
)
def test_receiver_that_is_killed_and_cannot_start_again_refuses_connections_until_it_can(
    pipe: Pipe, tmp_path: Path, spoil: Callable[[Path], Callable[[], object]], reason: str
) -> None:
    repair = spoil(tmp_path)
    pipe.signal("receiver lines", signal.SIGKILL)
    wait_until(
        lambda: re.search(f"^receiver lines cannot start .*{reason}", not_started(pipe).get("receiver lines", ""))
    )
    assert_refused(pipe)
    repair()
    wait_until(lambda: not not_started(pipe))
    socket.create_connection(pipe.address("lines")).close()

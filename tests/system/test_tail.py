"""``penstock tail`` against a real daemon: repeated kills while files are written and rotated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from penstock.drill.faults import VARIABLE, Faults
from penstock.drill.pipe import INJECTED
from penstock.testing.pipe import Pipe, wait_until
from tests.client.tail.journals import FOLDER, Journal
from tests.system.test_docs import commands_of, run
from tests.system.topic_files import entries

KILLS = 6
FEW_OR_MANY_KILLS = pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.soak)])
EVERY = 0.002
"""Seconds between two lines."""


def plain_line(number: int) -> str:
    return f"line {number}\n"


def container_lines(number: int) -> str:
    """Return an entry in two pieces, as a container's runtime writes it."""
    at = "2026-11-26T22:20:01.123456789Z"
    return f"{at} stdout P line \n{at} stderr F error {number}\n{at} stdout F {number}\n"


class Application:
    """A writer of numbered lines whose file is rotated by renaming every hundred lines."""

    def __init__(self, path: Path, line: Callable[[int], str] = plain_line) -> None:
        self._line = line
        self._path, self.written, self._ends = path, 0, threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        file = self._path.open("a")
        while not self._ends.wait(EVERY):
            file.write(self._line(self.written))
            file.flush()
            self.written += 1
            if self.written % 100 == 0:
                self._path.rename(self._path.with_name(f"{self._path.name}.{self.written // 100}"))
                file.close()
                file = self._path.open("a")
        file.close()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()


def following(pipe: Pipe, *arguments: str, stderr: int | IO[bytes] = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock.cli.main", "tail", *arguments, "--topic", "files", *pipe.options]
    return subprocess.Popen(command, stderr=stderr)


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that controls faults of files in the data directory for all processes."""
    path = tmp_path / "faults.json"
    Faults().write(path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(INJECTED), os.environ.get("PYTHONPATH", str(Path.cwd()))]))
    monkeypatch.setenv(VARIABLE, str(path))
    return path


@pytest.mark.survives("tail", "full disk")
@pytest.mark.survives("tail", "failing disk")
@pytest.mark.parametrize("fault", [Faults(full=True), Faults(failing=True)], ids=["full disk", "EIO"])
@pytest.mark.parametrize("state", ["state.json", "data/state.json"], ids=["of the daemon", "of the state file too"])
def test_tail_waits_for_a_full_or_failing_disk(faults: Path, tmp_path: Path, fault: Faults, state: str) -> None:
    pipe = Pipe(tmp_path)
    pipe.start()
    log, errors = tmp_path / "app.log", tmp_path / "errors.txt"
    log.write_text("first\n")
    try:
        with errors.open("wb") as stderr:
            process = following(pipe, str(log), "--state", str(tmp_path / state), stderr=stderr)
        wait_until(lambda: len(entries(pipe, "files")) == 1)
        fault.write(faults)
        time.sleep(0.2)
        with log.open("a") as file:
            file.write("second\n")
        wait_until(lambda: "trying again in 2 s" in errors.read_text(), what="it reports the disk twice")
        assert process.poll() is None
        Faults().write(faults)
        wait_until(lambda: len(entries(pipe, "files")) > 1, what="it goes on")
        process.terminate()
        assert process.wait(30) == 0
        assert [row["payload"] for row in entries(pipe, "files")] == [b"first", b"second"]
    finally:
        pipe.stop()


@pytest.mark.survives("tail", "peer away")
@pytest.mark.survives("tail", "SIGKILL")
def test_killed_tail_neither_loses_nor_repeats_lines(pipe: Pipe, tmp_path: Path) -> None:
    folder, dice = tmp_path / "logs", random.Random(7)
    folder.mkdir()
    application = Application(folder / "app.log")
    try:
        for number in range(KILLS):
            process, before = following(pipe, f"{folder}/app.log*"), len(entries(pipe, "files"))
            wait_until(lambda before=before: len(entries(pipe, "files")) > before, what="it appends")
            time.sleep(dice.random() / 2)
            if number == KILLS // 2:
                pipe.kill("log daemon")
            process.send_signal(signal.SIGKILL)
            process.wait()
    finally:
        application.stop()
    process = following(pipe, f"{folder}/app.log*", "--once")
    assert process.wait(60) == 0
    rows = entries(pipe, "files")
    assert Counter(row["payload"] for row in rows) == Counter(b"line %d" % n for n in range(application.written))
    assert {Path(row["annotations"]["file"]).name.partition(".")[0] for row in rows} == {"app"}
    assert pipe.settled()["unaccounted"] == 0


@pytest.mark.survives("tail", "SIGSTOP")
def test_stopped_tail_continues_with_the_files_that_were_rotated(pipe: Pipe, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    application = Application(folder / "app.log")
    process = following(pipe, f"{folder}/app.log*")
    try:
        wait_until(lambda: len(entries(pipe, "files")) > 0, what="it appends")
        process.send_signal(signal.SIGSTOP)
        before = application.written
        wait_until(lambda: application.written > before + 250, what="the file is rotated twice")
    finally:
        application.stop()
        process.send_signal(signal.SIGCONT)
    wait_until(lambda: len(entries(pipe, "files")) >= application.written, 60, "it has appended the rest")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    rows = entries(pipe, "files")
    assert Counter(row["payload"] for row in rows) == Counter(b"line %d" % n for n in range(application.written))
    assert pipe.settled()["unaccounted"] == 0


@pytest.mark.survives("tail", "SIGKILL")
@pytest.mark.timeout(1800)
@FEW_OR_MANY_KILLS
def test_killed_tail_of_containers_appends_each_entry_once(pipe: Pipe, tmp_path: Path, kills: int) -> None:
    folder, dice = tmp_path / "pods" / "shop_web_77" / "nginx", random.Random(8)
    folder.mkdir(parents=True)
    application = Application(folder / "0.log", container_lines)
    try:
        for _ in range(kills):
            process, before = following(pipe, "--containers", f"{folder}/*.log*"), len(entries(pipe, "files"))
            wait_until(lambda before=before: len(entries(pipe, "files")) > before, what="it appends")
            time.sleep(dice.random() / 2)
            process.send_signal(signal.SIGKILL)
            process.wait()
    finally:
        application.stop()
    process = following(pipe, "--containers", f"{folder}/*.log*", "--once")
    assert process.wait(60) == 0
    rows = entries(pipe, "files")
    expected = [text % number for number in range(application.written) for text in (b"line %d", b"error %d")]
    assert Counter(row["payload"] for row in rows) == Counter(expected)
    assert {row["annotations"]["pod"] for row in rows} == {"web"}


@pytest.mark.survives("tail", "SIGKILL")
@pytest.mark.timeout(1800)
@FEW_OR_MANY_KILLS
def test_killed_tail_of_the_journal_appends_each_entry_once(
    pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    journal, dice, ends = Journal(tmp_path / "journal"), random.Random(9), threading.Event()
    monkeypatch.setenv(FOLDER, str(journal.folder))
    monkeypatch.setenv("PATH", os.pathsep.join([os.path.dirname(journal.program), os.environ["PATH"]]))

    def write() -> None:
        while not ends.wait(EVERY):
            journal.write(b"line\n%d" % journal.written)
            if journal.written % 100 == 0:
                journal.rotate()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(kills):
            process, before = following(pipe, "--journal"), len(entries(pipe, "files"))
            wait_until(lambda before=before: len(entries(pipe, "files")) > before, what="it appends")
            time.sleep(dice.random() / 2)
            process.send_signal(signal.SIGKILL)
            process.wait()
    finally:
        ends.set()
        writer.join()
    process = following(pipe, "--journal", "--once")
    assert process.wait(60) == 0
    rows = entries(pipe, "files")
    assert Counter(row["payload"] for row in rows) == Counter(b"line\n%d" % n for n in range(journal.written))
    assert {row["annotations"]["unit"] for row in rows} == {"a.service"}


def test_command_of_the_page(one_pipe: Pipe, tmp_path: Path) -> None:
    (command,) = commands_of("tail")
    (tmp_path / "shop.log").write_text("from the page\n")
    run(one_pipe, command.replace("/var/log/shop", str(tmp_path)) + " --once")
    assert [row["payload"] for row in entries(one_pipe, "app")] == [b"from the page"]


def test_line_reaches_the_topic_soon_and_a_signal_ends_the_tail(pipe: Pipe, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("first\n")
    process = following(pipe, str(log))
    wait_until(lambda: len(entries(pipe, "files")) == 1)
    with log.open("a") as file:
        file.write("second\n")
    wait_until(lambda: len(entries(pipe, "files")) == 2, seconds=10)
    process.terminate()
    assert process.wait(30) == 0

"""A tailer in a folder of its own, with a topic, a clock, and the things that happen to log files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.client.log.types import OutOfSequence
from penstock.client.tail.journal import JournalTailer
from penstock.client.tail.journal_position import JournalPositionFile
from penstock.client.tail.positions import PositionsFile
from penstock.client.tail.tailer import Tailer
from penstock.testing import FakeClock, wait_until


class Killed(BaseException):
    """Stands for SIGKILL at a moment."""


class Topic:
    """A topic as the log keeps it: it knows a producer's last append, and stores a repeated one only once.

    ``dies``: whether the next append is cut short "before" or "after" it is stored. ``failure``: an append raises it.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.dies = ""
        self.failure: Exception | None = None
        self._producers: dict[str, tuple[int, list[Any]]] = {}

    def append(self, batch: pa.RecordBatch, producer: tuple[str, int]) -> None:
        if self.dies == "before":
            raise Killed
        if self.failure is not None:
            raise self.failure
        name, number = producer
        last, stored = self._producers.get(name, (0, []))
        rows = batch.to_pylist()
        if number == last:
            assert rows == stored, "the same number with other rows"
        elif number == last + 1:
            self._producers[name] = number, rows
            self.rows += rows
        else:
            raise OutOfSequence(f"{number} comes after {last}")
        if self.dies == "after":
            raise Killed

    def forget(self) -> None:
        self._producers.clear()

    @property
    def lines(self) -> list[bytes]:
        return [row["payload"] for row in self.rows]


class Following:
    """A tailer of ``patterns`` (relative to ``folder``), which may be killed and started again."""

    def __init__(self, folder: Path, *patterns: str, **options: Any) -> None:
        self.folder, self.topic, self.clock = folder, Topic(), FakeClock()
        self.number = 0
        self._patterns, self._options = patterns or ("*.log",), options
        self.tailer: Tailer | None = None
        self.state: PositionsFile | None = None

    def start(self) -> Tailer:
        self.state = PositionsFile(self.folder / "state" / "positions.json")
        patterns = [str(self.folder / pattern) for pattern in self._patterns]
        self.tailer = Tailer(patterns, self.topic.append, self.state, clock=self.clock.monotonic, **self._options)
        return self.tailer

    def kill(self) -> None:
        if self.tailer is not None:
            self.tailer.close()
        elif self.state is not None:
            self.state.close()
        self.tailer = self.state = None

    def run(self, *, is_final: bool = False) -> list[bytes]:
        """Append until nothing more is read; return all lines in the topic."""
        tailer = self.tailer or self.start()
        while tailer.turn(is_final=is_final):
            continue
        return self.topic.lines

    def run_once(self) -> list[bytes]:
        """Do what the command does with ``--once``; return all lines in the topic."""
        self.run()
        self.run(is_final=True)
        assert self.tailer is not None
        self.tailer.settle()
        self.kill()
        return self.topic.lines

    def path(self, name: str = "a.log") -> Path:
        return self.folder / name

    def write(self, data: bytes, name: str = "a.log") -> None:
        with self.path(name).open("ab") as file:
            file.write(data)


Step = Callable[[Following], object]


def append(name: str, content: bytes) -> Step:
    return lambda here: here.write(content, name)


def write_at(name: str, offset: int, content: bytes) -> Step:
    """Write as a writer without O_APPEND does, at its own offset."""

    def act(here: Following) -> None:
        with here.path(name).open("r+b") as file:
            file.seek(offset)
            file.write(content)

    return act


def rename(name: str, new_name: str) -> Step:
    return lambda here: here.path(name).rename(here.path(new_name))


def copy(name: str, new_name: str) -> Step:
    return lambda here: shutil.copyfile(here.path(name), here.path(new_name))


def cut(name: str, size: int = 0) -> Step:
    return lambda here: os.truncate(here.path(name), size)


def replace(name: str, content: bytes) -> Step:
    """Save as an editor does: a new file with the name of the old one."""

    def act(here: Following) -> None:
        draft = here.path(f"{name}.draft")
        draft.write_bytes(content)
        draft.rename(here.path(name))

    return act


def remove(name: str) -> Step:
    return lambda here: here.path(name).unlink()


def link(name: str, new_name: str) -> Step:
    return lambda here: here.path(new_name).symlink_to(here.path(name))


def hard_link(name: str, new_name: str) -> Step:
    return lambda here: here.path(new_name).hardlink_to(here.path(name))


def chmod(name: str, mode: int) -> Step:
    return lambda here: here.path(name).chmod(mode)


def make_folder(name: str) -> Step:
    return lambda here: here.path(name).mkdir()


def make_fifo(name: str) -> Step:
    return lambda here: os.mkfifo(here.path(name))


def wait(seconds: float) -> Step:
    return lambda here: here.clock.advance(seconds)


def stop(here: Following) -> None:
    """End with all positions stored, as at SIGTERM."""
    if here.tailer is not None:
        here.tailer.settle()
    here.kill()


def poll(here: Following) -> None:
    here.run()


def once(here: Following) -> None:
    here.run_once()


def killed(moment: str) -> Step:
    """Kill at the next append, before or after it is stored."""

    def act(here: Following) -> None:
        here.topic.dies = moment
        try:
            here.run()
        except Killed:
            here.kill()
        here.topic.dies = ""

    return act


def play(here: Following, steps: list[Step]) -> list[bytes]:
    """Do all ``steps``; return the lines in the topic."""
    for step in steps:
        step(here)
    here.kill()
    return here.topic.lines


class FollowedJournal:
    """A tailer of the journal that ``program`` reads, which may be killed and started again."""

    def __init__(self, program: str, state: Path) -> None:
        self.program, self.topic, self.state = program, Topic(), state
        self.tailer: JournalTailer | None = None
        self.missing = 0

    def start(self, **options: Any) -> JournalTailer:
        state = JournalPositionFile(self.state)
        try:
            self.tailer = JournalTailer(self.topic.append, state, program=self.program, **options)
        except BaseException:
            state.close()
            raise
        return self.tailer

    def turn(self) -> None:
        assert self.tailer is not None
        while self.tailer.turn():
            continue

    def read_until(self, rows: int) -> None:
        """Follow until the topic has ``rows`` rows."""

        def is_read() -> bool:
            self.turn()
            return len(self.topic.rows) >= rows

        wait_until(is_read)

    def kill(self) -> None:
        """End without a last look at the state, as SIGKILL does."""
        if self.tailer is not None:
            self.missing += self.tailer.missing
            self.tailer.close()
        self.tailer = None

    def kill_journalctl(self) -> None:
        if self.tailer is not None and (process := self.tailer._process) is not None:
            process.kill()

    def run_once(self, **options: Any) -> list[bytes]:
        tailer = self.start(once=True, **options)
        self.turn()
        tailer.settle()
        self.kill()
        return self.topic.lines


def annotation(row: dict[str, Any], name: str) -> str | None:
    """Return the text of an annotation of a row."""
    texts: dict[str, str] = dict(row["annotations"])
    return texts.get(name)

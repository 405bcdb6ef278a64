"""A writer and a reader in two processes, and a writer that is killed repeatedly."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.handover.positions.position import ReaderPosition
from penstock.logbuffer import Busy, Frame, Parameters, Publication, Subscription, mtu_for
from penstock.logbuffer.aeron import FragmentAssembler

WRITER = Path(__file__).with_name("logbuffer_writer.py")
ROOT = Path(__file__).parents[2]


def create(folder: Path, mtu: int) -> None:
    Publication.create(folder / "log", Parameters(65536, mtu, session_id=7, stream_id=1, initial_term_id=-3)).close()


def start(folder: Path, last: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(folder), str(last)], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    )


class Reader:
    """A reader that checks that each message is complete and that none is missing or repeated."""

    def __init__(self, folder: Path) -> None:
        self.position = ReaderPosition(folder / "reader")
        self.subscription = Subscription(folder / "log", self.position.position)
        self.assembler = FragmentAssembler()
        self.expected = 0

    def read(self) -> None:
        for frame in self.assembler.push(self.subscription.poll(20_000)):
            self.check(frame)
            del frame
        self.position.position = self.subscription.position

    def check(self, frame: Frame) -> None:
        number = frame.reserved_value
        assert number == self.expected
        assert bytes(frame.data) == bytes([number % 251]) * (number * 37 % 8000)
        self.expected += 1


@pytest.mark.parametrize("mtu", [mtu_for(8000), 1408], ids=["one frame a message", "fragments"])
def test_reader_in_another_process_sees_only_complete_frames(tmp_path: Path, mtu: int) -> None:
    """The writer runs on one core, the reader on another."""
    create(tmp_path, mtu)
    reader = Reader(tmp_path)
    writer = start(tmp_path, 10_000)
    cores = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(writer.pid, cores[:1])
        os.sched_setaffinity(0, cores[-1:])
        deadline = time.monotonic() + 600
        while reader.expected <= 10_000 and time.monotonic() < deadline:
            reader.read()
    finally:
        os.sched_setaffinity(0, cores)
        writer.kill()
        writer.wait()
    assert reader.expected == 10_001


def test_killed_writer_neither_loses_nor_repeats_messages(tmp_path: Path) -> None:
    """The successor finds the last published frame and continues with the next number."""
    create(tmp_path, mtu_for(8000))
    reader = Reader(tmp_path)
    chance = random.Random(5)
    for _ in range(8):
        writer = start(tmp_path, 1 << 40)
        before = reader.expected
        deadline = time.monotonic() + 30
        while reader.expected == before and time.monotonic() < deadline:
            reader.read()
        stop = time.monotonic() + chance.random() / 10
        while time.monotonic() < stop:
            reader.read()
        writer.kill()
        writer.wait()
        for _ in range(10):
            reader.read()
        assert reader.expected > before


def test_second_process_cannot_publish_into_the_same_file(tmp_path: Path) -> None:
    create(tmp_path, 1408)
    with Publication.open(tmp_path / "log"), pytest.raises(Busy, match="another process publishes"):
        Publication.open(tmp_path / "log")
    Publication.open(tmp_path / "log").close()

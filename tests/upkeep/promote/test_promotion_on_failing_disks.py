"""Promotion to a real Kafka while disks fail: no row is copied twice, and the pipeline moves to its offset."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS
from penstock.kafka.broker import Broker
from penstock.kafka.origin_header import LOG_OFFSET_HEADER
from penstock.landing.from_kafka.offset_map import Move, OffsetMap, map_path
from penstock.landing.journal import Journal, latest
from penstock.landing.spark_checkpoint import read_plan
from penstock.landing.table_paths import Layout
from penstock.proof.posts.moved_topics import moved_maps
from penstock.upkeep.promote import promotion
from penstock.upkeep.promote.kafka_writer import read_header_values
from penstock.upkeep.promote.promotion import CannotMove, Promotion, move_pipeline
from tests.spark.spark_helpers import HandWritten, append, event, landed_event

ROWS, LANDED = 12, 6


@dataclass
class Promoted:
    """A topic of three batches of four rows, of which the pipeline has landed one and a half."""

    folder: Path
    broker: Broker
    name: str = field(default_factory=lambda: f"p{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        append(self.folder / "topics", "t", *[[event(row + n) for n in range(4)] for row in range(0, ROWS, 4)])
        self.layout = Layout.for_tables(self.folder / "tables")
        self.map_path = map_path(self.layout, "t")
        HandWritten(self.layout).commit({"t": LANDED}, [landed_event(n, f"u{n}") for n in range(LANDED)])
        self.kafka = {"bootstrap.servers": self.broker.address}

    def copy(self) -> int:
        promotion = Promotion(self.folder / "topics", self.layout, "t", self.kafka, self.name)
        try:
            return promotion.copy()
        finally:
            promotion.close()

    def move(self) -> dict[str, Move]:
        return move_pipeline(self.layout, self.kafka)

    def positions(self) -> dict[int, int]:
        """Return the Kafka offset of each row by its offset in the log; each row is there once."""
        records = list(read_header_values(self.kafka, (self.name, 0), 0, LOG_OFFSET_HEADER))
        positions = {int(log_offset): offset for offset, log_offset in records}
        assert len(records) == len(positions), "a row was copied twice"
        return positions

    def check(self) -> None:
        """Check that Kafka has each row once, and that the pipeline continues at the first that has not landed."""
        positions = self.positions()
        assert sorted(positions) == list(range(ROWS))
        offset_map = OffsetMap.load(self.map_path)
        assert offset_map
        assert [offset_map.kafka_position(row) for row in range(ROWS)] == [(0, positions[row]) for row in range(ROWS)]
        begin = positions[LANDED - 1] + 1
        assert offset_map.move == Move(LANDED, {0: begin}, offset_map.move.bucket if offset_map.move else 0)
        assert read_plan(self.layout.checkpoint, 0).end == {f"{self.name}/0": begin}
        assert Journal(self.layout).update() == []
        assert latest(self.layout, moves=True)[1][-1].end == {f"{self.name}/0": begin}


@pytest.fixture
def promoted(kafka_broker: Broker, tmp_path: Path) -> Promoted:
    return Promoted(tmp_path, kafka_broker)


@pytest.mark.survives("promotion to Kafka", "damaged bytes")
@pytest.mark.parametrize("lines", [[1], [2], [1, 2, 3]], ids=str)
def test_damaged_lines_of_the_map_are_read_from_kafka(promoted: Promoted, lines: list[int]) -> None:
    assert promoted.copy() == ROWS
    content = promoted.map_path.read_bytes().splitlines(keepends=True)
    for line in lines:
        content[line] = content[line].replace(b'"runs"', b'"ruins')
    promoted.map_path.write_bytes(b"".join(content))
    with pytest.raises(CannotMove, match=r"damaged: run|also reads t"):
        promoted.move()
    assert promoted.copy() == 0
    assert promoted.move()["t"].landed == LANDED
    promoted.check()


@pytest.mark.survives("promotion to Kafka", "damaged bytes")
@pytest.mark.parametrize("damage", [lambda data: data[:0], lambda data: data[:20], lambda data: b"\0" + data[1:]])
def test_map_without_its_header_copies_nothing_again(promoted: Promoted, damage: Callable[[bytes], bytes]) -> None:
    promoted.copy()
    promoted.map_path.write_bytes(damage(promoted.map_path.read_bytes()))
    for _ in range(2):
        with pytest.raises(DamagedFile, match=r"delete the file and name another topic with --as"):
            promoted.copy()
    assert len(promoted.positions()) == ROWS


def test_reader_of_the_map_does_not_cut_a_line_that_is_being_written(promoted: Promoted) -> None:
    promoted.copy()
    with promoted.map_path.open("ab") as file:
        file.write(b'01234567{"v":1,"end"')
    content = promoted.map_path.read_bytes()
    offset_map = OffsetMap.load(promoted.map_path)
    assert (offset_map and offset_map.end, promoted.map_path.read_bytes()) == (ROWS, content)


@pytest.mark.survives("promotion to Kafka", "power cut")
@pytest.mark.parametrize("lines", [1, 3])
def test_map_that_a_power_cut_shortened_copies_nothing_again(promoted: Promoted, lines: int) -> None:
    promoted.copy()
    content = promoted.map_path.read_bytes().splitlines(keepends=True)
    promoted.map_path.write_bytes(b"".join(content[:lines]) + b"".join(content[lines:])[:11])
    assert promoted.copy() == 0
    promoted.move()
    promoted.check()


@pytest.mark.survives("promotion to Kafka", "power cut")
def test_map_is_on_the_disk_before_the_first_row_is_copied(promoted: Promoted, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, copied = set[Path](), OffsetMap.add
    sync_directory = OS.sync_directory
    monkeypatch.setattr(OS, "sync_directory", lambda path: (synced.add(path), sync_directory(path)))

    def add(*arguments: Any) -> None:
        assert {promoted.map_path.parent, promoted.map_path.parent.parent} <= synced
        copied(*arguments)

    monkeypatch.setattr(OffsetMap, "add", add)
    assert promoted.copy() == ROWS


@pytest.mark.survives("promotion to Kafka", "power cut")
def test_rows_that_kafka_lost_are_named(promoted: Promoted) -> None:
    promoted.copy()
    offset_map = OffsetMap.load(promoted.map_path)
    assert offset_map
    offset_map.add([ROWS], [(0, 100)], ROWS + 1)  # as if a broker without a replica had acknowledged and lost it
    for refused in (promoted.copy, promoted.move):
        with pytest.raises(CannotMove, match=r"/0 of Kafka ends at \d+, and had copied rows up to 101: Kafka lost"):
            refused()


@contextlib.contextmanager
def failing_once(monkeypatch: pytest.MonkeyPatch, step: int, code: int) -> Iterator[list[str]]:
    """Let the call of the file system with number ``step`` fail; yield the list of calls."""
    calls: list[str] = []

    def counted(name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) - 1 == step:
            raise OSError(code, os.strerror(code))
        opened = function(*arguments, **options)
        if name == "open":
            for method in ("write", "sync"):
                setattr(opened, method, partial(counted, method, getattr(opened, method)))
        return opened

    with monkeypatch.context() as patched:
        for name in ("open", "rename", "sync_directory"):
            patched.setattr(OS, name, partial(counted, name, getattr(OS, name)))
        yield calls


@pytest.mark.survives("promotion to Kafka", "full disk")
@pytest.mark.survives("promotion to Kafka", "failing disk")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_promotion_that_fails_at_any_step_is_repeated(
    promoted: Promoted, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function in (promoted.copy, promoted.move):
        for step in itertools.count():
            with failing_once(monkeypatch, step, code) as calls, contextlib.suppress(OSError):
                function()
            if len(calls) <= step:
                break
        assert step > 3
    promoted.check()


@pytest.mark.survives("promotion to Kafka", "failing disk")
def test_rows_that_land_from_the_log_after_a_failed_move_are_not_counted_as_promoted(
    promoted: Promoted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    promoted.copy()
    with monkeypatch.context() as failing:
        failing.setattr(promotion, "write_plan", fail)
        with pytest.raises(OSError, match="Input/output error"):
            promoted.move()
    assert moved_maps(promoted.layout) == []
    table = HandWritten(promoted.layout, {"t": LANDED}, 0)
    table.commit({"t": LANDED + 3}, [landed_event(n, f"u{n}") for n in range(LANDED, LANDED + 3)])
    Journal(promoted.layout).update()
    assert moved_maps(promoted.layout) == []
    assert promoted.move()["t"].landed == LANDED + 3
    assert [offset_map.topic for offset_map in moved_maps(promoted.layout)] == ["t"]


def test_topic_of_kafka_that_has_the_rows_of_another_topic_is_refused(promoted: Promoted) -> None:
    promoted.copy()
    append(promoted.folder / "topics", "other", [event(row) for row in range(ROWS + 4)])
    with pytest.raises(CannotMove, match=r"has the rows of t already: name another with --as"):
        Promotion(promoted.folder / "topics", promoted.layout, "other", promoted.kafka, promoted.name)
    assert promoted.copy() == 0


def test_rows_of_another_host_in_the_topic_of_kafka_are_not_taken_for_copied_ones(
    promoted: Promoted, tmp_path: Path
) -> None:
    promoted.copy()
    other = tmp_path / "other"
    append(other / "topics", "t", [event(row) for row in range(ROWS + 4)])
    promotion = Promotion(other / "topics", Layout.for_tables(other / "tables"), "t", promoted.kafka, promoted.name)
    assert promotion.copy() == ROWS + 4
    promotion.close()
    append(promoted.folder / "topics", "t", [event(row) for row in range(ROWS, ROWS + 4)])
    with pytest.raises(CannotMove, match=r"has rows of another log than t, such as at offset \d+: copy each log to a"):
        promoted.copy()
    offset_map = OffsetMap.load(promoted.map_path)
    assert offset_map
    assert offset_map.end == ROWS

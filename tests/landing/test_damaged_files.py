"""Damaged files of the landing: errors name them, and the landing continues if it can."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.from_kafka.offset_map import OffsetMap
from penstock.landing.journal import Journal, latest
from penstock.landing.requests import backfill_requests as requests
from penstock.landing.table_paths import Layout
from penstock.proof.watermarks import keep_watermarks, kept_watermarks
from penstock.records import body
from penstock.upkeep.quarantine.send_once import Producer, Resender, to_body
from tests.spark.spark_helpers import HandWritten, landed_message

MARK = {"table": "events", "topic": "in", "until": 60, "landed": 2, "share": 1.0}


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    path.write_bytes(data)


def test_damaged_line_loses_one_commit(table: HandWritten, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(4):
        table.commit({"a": number + 1}, [landed_message(number, "a")])
    Journal(table.layout).update()
    lines = table.layout.journal.read_bytes().splitlines(keepends=True)
    table.layout.journal.write_bytes(lines[0] + lines[1][:40] + b"\xff\0" + lines[1][42:] + b"".join(lines[2:]))
    assert [commit.batch for commit in latest(table.layout, repair=True)[1]] == [0, 2, 3]
    assert str(table.layout.journal) in caplog.messages[0]
    assert Journal(table.layout).update() == []


def test_damaged_request_raises_its_file_name(tmp_path: Path) -> None:
    requests.write_request(tmp_path, "in", [(0, 5)])
    flip(tmp_path / "000001.json", 200)
    with pytest.raises(DamagedFile, match=r"000001\.json is damaged"):
        requests.load_requests(tmp_path)


def test_damaged_watermarks_are_logged_and_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    layout = Layout.for_tables(tmp_path)
    layout.watermarks.parent.mkdir()
    keep_watermarks(layout, [MARK])
    flip(layout.watermarks, 100)
    assert kept_watermarks(layout) == []
    assert str(layout.watermarks) in caplog.messages[0]
    keep_watermarks(layout, [MARK])
    assert len(kept_watermarks(layout)) == 1


class Sink:
    """A sink that records rows."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.refuses = False

    def append_batch(self, topic: str, body: pa.RecordBatch, producer: Producer | None = None) -> list[int]:
        if self.refuses:
            raise OSError("away")
        self.rows += body.column("payload").to_pylist()
        return []


def plan_sending(path: Path, sink: Sink) -> None:
    """Write a plan that was not carried out."""
    sink.refuses = True
    with pytest.raises(OSError, match="away"):
        Resender(path, sink).send("in", [1, 2], to_body([(None, b"one", None, {}), (None, b"two", None, {})]))
    sink.refuses = False


def test_damaged_record_of_sent_rows_is_refused(tmp_path: Path) -> None:
    sink, path = Sink(), tmp_path / "sent.jsonl"
    Resender(path, sink).send("in", [0], body([b"zero"]))
    data = path.read_bytes()
    for offset in (10, len(data) - 4):
        path.write_bytes(data[:offset] + b"\0" + data[offset + 1 :])
        with pytest.raises(DamagedFile, match=r"sent\.jsonl: .* would be sent again"):
            Resender(path, sink)
        assert len(path.read_bytes()) == len(data), "nothing is cut"
    path.write_bytes(data[:-4])
    assert not Resender(path, sink).is_new("in", 0), "a line with a torn end was not written"


def test_rows_are_checked_before_they_are_sent_again(tmp_path: Path) -> None:
    sink, path = Sink(), tmp_path / "sent.jsonl"
    plan_sending(path, sink)
    Resender(path, sink).finish()
    assert sink.rows == [b"one", b"two"]
    path.unlink()
    plan_sending(path, sink)
    rows = next(tmp_path.glob("*.arrow"))
    rows.write_bytes(rows.read_bytes().replace(b"onetwo", b"oneTwo"))
    with pytest.raises(DamagedFile, match=r"\.arrow is damaged"):
        Resender(path, sink).finish()
    assert sink.rows == [b"one", b"two"]


def test_map_without_beginning_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    OffsetMap.begin(path, "in", "there", {0: 0}).add([0], [(0, 0)], 1)
    flip(path, 100)
    with pytest.raises(DamagedFile, match="first line is damaged"):
        OffsetMap.load(path)


def _map(path: Path) -> object:
    return OffsetMap.load(path)


def _requests(path: Path) -> object:
    return requests.load_requests(path.parent)


def _sent(path: Path) -> object:
    return Resender(path, Sink())


@pytest.mark.survives("landing from the log", "damaged bytes")
@pytest.mark.parametrize("read", [_map, _requests, _sent], ids=lambda read: read.__name__[1:])
def test_no_flip_and_no_truncation_raises_anything_but_our_errors(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    OffsetMap.begin(tmp_path / "map.jsonl", "in", "there", {0: 0}).add([0, 1], [(0, 0), (0, 1)], 2)
    requests.write_request(tmp_path, "in", [(0, 5), (7, 9)], owed=[3])
    Resender(tmp_path / "sent.jsonl", Sink()).send("in", ["k"], body([b"x"]))
    file = {"_map": "map.jsonl", "_requests": "000001.json", "_sent": "sent.jsonl"}
    path = tmp_path / file[read.__name__]
    written, chance = path.read_bytes(), random.Random(14)
    for _ in range(150):
        path.write_bytes(written[: chance.randrange(len(written))] if chance.random() < 0.2 else written)
        if path.stat().st_size:
            flip(path, chance.randrange(8 * len(written)))
        errors = []
        try:
            read(path)
        except PenstockError as error:
            errors.append(str(error))
        assert all(path.name in error for error in errors)

"""Times of rows, from the index alone where it has them, are the same as a reader gives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Origin
from penstock.log import Log, TopicSettings
from penstock.log.read.topic_reader import TopicReader, row_times
from penstock.log.store.index import HEADER_SIZE, RECORD, Record, header
from penstock.log.store.segment_files import SegmentFiles
from penstock.records import body

ROWS = 400


def fill(folder: Path, origin_name: str = "events") -> Path:
    """Append batches of ten rows, in several segments."""
    log = Log(folder, TopicSettings(segment_size_limit=16_384))
    topic = log.topic("t", create=True)
    for number in range(ROWS // 10):
        rows = body(pa.array([b"%d" % number * 20] * 10, pa.binary()))
        topic.append(rows, Origin(origin_name, 60, 0, number)).result(10)
    log.close()
    assert len(segments(folder / "t")) > 2
    return folder / "t"


def segments(topic: Path) -> list[SegmentFiles]:
    return [SegmentFiles(topic, int(path.stem)) for path in sorted(topic.glob("*.arrows"))]


def read_times(topic: Path) -> list[int | None]:
    reader = TopicReader(topic)
    return [next(reader.read(offset, max_rows=1)).first for offset in range(ROWS)]


def remove_index(path: Path) -> None:
    path.unlink()


def flip_each_record(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for position in range(HEADER_SIZE + 9, len(content), RECORD.itemsize):
        content[position] ^= 1
    path.write_bytes(content)


def cut_record(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def swap_header(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [None, remove_index, flip_each_record, cut_record, swap_header])
def test_each_row_has_the_time_that_a_reader_gives(tmp_path: Path, damage: Callable[[Path], None] | None) -> None:
    topic = fill(tmp_path / "topics")
    expected = read_times(topic)
    for files in segments(topic) if damage else ():
        assert damage
        damage(files.index)
    assert row_times(topic, range(ROWS)) == expected
    assert row_times(topic, [ROWS - 1, 0, ROWS, ROWS + 1]) == [expected[-1], expected[0], None, None]


def test_ends_of_batches_need_no_data(tmp_path: Path) -> None:
    """A batch of the landing asks for two rows of each topic, which would be read with their whole batches."""
    topic = fill(tmp_path / "topics")
    expected, ends = read_times(topic), range(9, ROWS, 10)
    for files in segments(topic):
        os.truncate(files.data, 0)
    assert row_times(topic, ends) == [expected[offset] for offset in ends]


def test_replaced_topic_has_its_own_times(tmp_path: Path) -> None:
    topic = fill(tmp_path / "topics")
    former = row_times(topic, range(ROWS))
    shutil.rmtree(topic.parent)
    assert row_times(topic, [0, 9]) == [None, None]
    fill(tmp_path / "topics", "others")
    assert row_times(topic, range(ROWS)) == read_times(topic)
    assert not set(row_times(topic, range(ROWS))) & set(former)


def test_damaged_batch_has_the_time_of_the_next_row_as_for_a_reader(tmp_path: Path) -> None:
    topic = fill(tmp_path / "topics")
    first = segments(topic)[0]
    content = bytearray(first.data.read_bytes())
    content[content.index(b"1" * 20)] ^= 1
    first.data.write_bytes(content)
    first.index.unlink()
    log = Log(topic.parent)
    log.topic("t").verify()
    log.close()
    assert row_times(topic, [10, 19]) == [
        next(TopicReader(topic).read(offset, max_rows=1)).first for offset in (10, 19)
    ]


@given(st.binary(max_size=4 * RECORD.itemsize), st.integers(0, 1 << 63))
def test_random_index_gives_a_time_or_none(tmp_path_factory: pytest.TempPathFactory, content: bytes, base: int) -> None:
    topic = tmp_path_factory.mktemp("topics") / "t"
    topic.mkdir()
    files = SegmentFiles(topic, 0)
    files.data.write_bytes(b"")
    record = Record(base & (1 << 62) - 1, 5, 9, 0, 1, 3, 60, 0, 0, b"events").packed()
    files.index.write_bytes(header(files.fingerprint) + record + content)
    assert all(time is None or isinstance(time, int) for time in row_times(topic, [0, base]))

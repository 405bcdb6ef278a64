"""The quick check of a topic's files."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.file_system import OS
from penstock.log import Gap, Log, TopicReader, TopicSettings, UnknownFormat
from penstock.log.read.glance import glance
from penstock.log.store.segment import MAX_PREALLOCATED_BYTES
from penstock.log.store.segment_files import SegmentFiles, read_synced, synced_words, write_synced
from penstock.testing import FakeClock
from penstock.testing.damage import DAMAGES
from tests.log.log_helpers import UNSYNCED, fill, last_files, opened, payloads

SMALL = TopicSettings(segment_size_limit=1)
"""A segment for each append."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a topic with three segments of two rows each, the first of which was dropped."""
    return make_topic(tmp_path)


def make_topic(directory: Path) -> Path:
    clock = FakeClock()
    with opened(directory, settings=SMALL, clock=clock) as topic:
        fill(topic, [b"a", b"b"])
        clock.advance(SMALL.stale_after + 1)
        fill(topic, [b"c", b"d"])
        topic.sweep()
        fill(topic, [b"e", b"f"])
        topic.wait_until_idle()
    return directory / "t"


def test_closed_topic_is_intact(folder: Path) -> None:
    intact = glance(folder)
    assert intact is not None
    reader = TopicReader(folder)
    assert (intact.end, list(intact.gaps)) == (reader.end, reader.gaps())
    assert intact.last == reader.extent().newest


def test_empty_topic_is_intact(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    intact = glance(tmp_path / "t")
    assert intact is not None
    assert (intact.end, intact.last, list(intact.gaps)) == (0, 0, [])


def test_topic_without_rows_has_no_last_time(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock=clock) as topic:
        fill(topic, [b"a", b"b"])
        clock.advance(TopicSettings().stale_after + 1)
        topic.sweep()
        topic.sweep()
    intact = glance(tmp_path / "t")
    assert intact is not None
    assert (intact.end, intact.last, [gap.end for gap in intact.gaps]) == (2, 0, [2])


def unpublish(folder: Path) -> None:
    """Reset the synced length, as a kill between sync and publication does."""
    files = last_files(folder)
    write_synced(OS, files, 0, files.first)


def resize(path: Path, by: int) -> None:
    """Lengthen a file by some bytes, or shorten it."""
    data = path.read_bytes()
    path.write_bytes(data + b"\x01" * by if by > 0 else data[:by])


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def sealed_segment(folder: Path) -> SegmentFiles:
    """Return the first existing segment, which is sealed."""
    return SegmentFiles(folder, 2)


DISORDER: list[tuple[str, Callable[[Path], object]]] = [
    ("unpublished bytes", lambda folder: resize(last_files(folder).data, 8)),
    ("truncated data", lambda folder: resize(last_files(folder).data, -8)),
    ("unpublished rows", unpublish),
    ("no synced length", lambda folder: last_files(folder).synced.unlink()),
    ("another's synced length", lambda folder: shutil.copy(sealed_segment(folder).synced, last_files(folder).synced)),
    ("a flipped bit in the synced length", lambda folder: flip_bit(last_files(folder).synced, 3)),
    ("no index", lambda folder: last_files(folder).index.unlink()),
    ("another's index", lambda folder: shutil.copy(sealed_segment(folder).index, last_files(folder).index)),
    ("an index that is short", lambda folder: resize(last_files(folder).index, -96)),
    ("an index that is torn", lambda folder: resize(last_files(folder).index, -1)),
    ("a flipped bit in the index", lambda folder: flip_bit(last_files(folder).index, 70)),
    ("a flipped bit in the index's head", lambda folder: flip_bit(last_files(folder).index, 3)),
    ("a flipped bit in the index of a closed segment", lambda folder: flip_bit(sealed_segment(folder).index, 70)),
    ("a truncated sealed segment", lambda folder: resize(sealed_segment(folder).data, -8)),
    ("a sealed segment without index", lambda folder: sealed_segment(folder).index.unlink()),
    ("missing data of a segment", lambda folder: sealed_segment(folder).data.unlink()),
    ("all files of a segment missing", lambda folder: [p.unlink() for p in sealed_segment(folder).paths]),
    ("a segment that was only begun", lambda folder: (folder / f"{9:020}.index").write_bytes(b"")),
    ("a temporary file", lambda folder: (folder / "x.tmp").write_bytes(b"")),
    ("missing gaps", lambda folder: (folder / "gaps.jsonl").unlink()),
    ("gaps without a copy", lambda folder: (folder / "gaps.copy.jsonl").unlink()),
    ("damaged gaps", lambda folder: flip_bit(folder / "gaps.jsonl", 12)),
    ("no segments", lambda folder: [path.unlink() for path in folder.glob("*.arrows")]),
    ("no folder", shutil.rmtree),
]


def test_preallocated_space_of_the_last_segment_is_intact(folder: Path) -> None:
    intact = glance(folder)
    data = last_files(folder).data
    data.write_bytes(data.read_bytes() + bytes(MAX_PREALLOCATED_BYTES))
    assert glance(folder) == intact is not None
    data.write_bytes(data.read_bytes() + bytes(1))
    assert glance(folder) is None


@pytest.mark.parametrize(("disorder", "disturb"), DISORDER, ids=[disorder for disorder, _ in DISORDER])
def test_topic_that_recovery_would_change_is_not_intact(
    folder: Path, disorder: str, disturb: Callable[[Path], object]
) -> None:
    assert glance(folder) is not None
    disturb(folder)
    assert glance(folder) is None, disorder


def test_recovered_topic_is_intact(folder: Path) -> None:
    resize(last_files(folder).data, 8)
    with opened(folder.parent) as topic:
        assert payloads(topic) == [b"c", b"d", b"e", b"f"]
    assert glance(folder) is not None


def test_gap_behind_the_last_segment_is_not_intact(folder: Path) -> None:
    with opened(folder.parent) as topic:
        topic._gaps.add([Gap(topic.end, topic.end + 1, "corrupt")])
    assert glance(folder) is None


@given(name=st.sampled_from(["index", "synced", "arrows", "gaps"]), data=st.binary(max_size=300))
def test_file_of_random_bytes_is_not_intact(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = make_topic(Path(directory))
        files = last_files(folder)
        for path in [folder / "gaps.jsonl", folder / "gaps.copy.jsonl"] if name == "gaps" else [files.data]:
            path.with_suffix(path.suffix if name == "gaps" else f".{name}").write_bytes(data)
        assert glance(folder) is None


def test_unknown_format_is_reported(folder: Path) -> None:
    files = last_files(folder)
    synced = read_synced(OS, files)
    assert synced is not None
    words = synced_words(*synced, version=2, fingerprint=files.fingerprint)
    files.synced.write_bytes(b"".join(word.to_bytes(8, "little", signed=True) for word in words))
    with pytest.raises(UnknownFormat, match="has format 2"):
        glance(folder)


def test_damaged_batch_is_detected_when_the_topic_is_opened(folder: Path) -> None:
    flip_bit(last_files(folder).data, last_files(folder).data.stat().st_size - 60)
    assert glance(folder) is not None
    with opened(folder.parent) as topic:
        assert [(gap.begin, gap.end) for gap in topic.gaps() if gap.reason == "corrupt"] == [(4, 6)]


@given(seed=st.integers(0, 1 << 32), number=st.integers(1, 3))
def test_intact_topic_opens_with_the_same_end_and_gaps_after_any_damage(seed: int, number: int) -> None:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        folder = make_topic(Path(directory))
        for path in dice.sample(sorted(path for path in folder.iterdir() if path.stat().st_size), number):
            dice.choice(list(DAMAGES.values()))(path, dice)
        intact = glance(folder)
        log = Log(Path(directory), fs=UNSYNCED)
        topic = log.topic("t")
        if intact is not None:
            assert topic.end == intact.end
            assert [gap for gap in topic.gaps() if gap.reason != "corrupt"] == list(intact.gaps)
            assert all(gap.counts for gap in topic.gaps()), "the index names the source of lost rows"
        log.close()

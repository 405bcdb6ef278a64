"""Whether a topic's files are in order, at a glance."""

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
from penstock.log.store.segment import ROOM, Files, read_synced, synced_words, write_synced
from penstock.testing import FakeClock
from penstock.testing.damage import DAMAGES
from tests.log.log_helpers import UNSYNCED, fill, last_files, opened, payloads

SMALL = TopicSettings(segment_size_limit=1)
"""A segment for each append."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a topic with three segments of two rows each, the first of which was dropped."""
    return made(tmp_path)


def made(directory: Path) -> Path:
    clock = FakeClock()
    with opened(directory, settings=SMALL, clock=clock) as topic:
        fill(topic, [b"a", b"b"])
        clock.advance(SMALL.stale_after + 1)
        fill(topic, [b"c", b"d"])
        topic.sweep()
        fill(topic, [b"e", b"f"])
        topic.settle()
    return directory / "t"


def test_a_topic_that_was_closed_is_in_order(folder: Path) -> None:
    found = glance(folder)
    assert found is not None
    reader = TopicReader(folder)
    assert (found.end, list(found.gaps)) == (reader.end, reader.gaps())
    assert found.last == reader.extent().newest


def test_an_empty_topic_is_in_order(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    found = glance(tmp_path / "t")
    assert found is not None
    assert (found.end, found.last, list(found.gaps)) == (0, 0, [])


def test_a_topic_of_which_all_is_dropped_has_no_last_row(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock=clock) as topic:
        fill(topic, [b"a", b"b"])
        clock.advance(TopicSettings().stale_after + 1)
        topic.sweep()
        topic.sweep()
    found = glance(tmp_path / "t")
    assert found is not None
    assert (found.end, found.last, [gap.end for gap in found.gaps]) == (2, 0, [2])


def unpublish(folder: Path) -> None:
    """As a kill between the sync and the publishing leaves it."""
    files = last_files(folder)
    write_synced(OS, files, 0, files.first)


def torn(path: Path, by: int) -> None:
    """Lengthen a file by some bytes, or shorten it."""
    data = path.read_bytes()
    path.write_bytes(data + b"\x01" * by if by > 0 else data[:by])


def flipped(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def sealed(folder: Path) -> Files:
    """The first segment there is, which is not the last."""
    return Files(folder, 2)


DISORDER: list[tuple[str, Callable[[Path], object]]] = [
    ("bytes that nobody published", lambda folder: torn(last_files(folder).data, 8)),
    ("an end that is lost", lambda folder: torn(last_files(folder).data, -8)),
    ("rows that nobody published", unpublish),
    ("no synced length", lambda folder: last_files(folder).synced.unlink()),
    ("another's synced length", lambda folder: shutil.copy(sealed(folder).synced, last_files(folder).synced)),
    ("a flipped bit in the synced length", lambda folder: flipped(last_files(folder).synced, 3)),
    ("no index", lambda folder: last_files(folder).index.unlink()),
    ("another's index", lambda folder: shutil.copy(sealed(folder).index, last_files(folder).index)),
    ("an index that is short", lambda folder: torn(last_files(folder).index, -96)),
    ("an index that is torn", lambda folder: torn(last_files(folder).index, -1)),
    ("a flipped bit in the index", lambda folder: flipped(last_files(folder).index, 70)),
    ("a flipped bit in the index's head", lambda folder: flipped(last_files(folder).index, 3)),
    ("a flipped bit in the index of a closed segment", lambda folder: flipped(sealed(folder).index, 70)),
    ("a closed segment whose end is lost", lambda folder: torn(sealed(folder).data, -8)),
    ("a closed segment without index", lambda folder: sealed(folder).index.unlink()),
    ("a segment that is lost", lambda folder: sealed(folder).data.unlink()),
    ("a segment that is lost with all that is its own", lambda folder: [p.unlink() for p in sealed(folder).all]),
    ("a segment that was begun", lambda folder: (folder / f"{9:020}.index").write_bytes(b"")),
    ("a file that was begun", lambda folder: (folder / "x.tmp").write_bytes(b"")),
    ("gaps that are lost", lambda folder: (folder / "gaps.jsonl").unlink()),
    ("gaps without a copy", lambda folder: (folder / "gaps.copy.jsonl").unlink()),
    ("damaged gaps", lambda folder: flipped(folder / "gaps.jsonl", 12)),
    ("no segments", lambda folder: [path.unlink() for path in folder.glob("*.arrows")]),
    ("no folder", shutil.rmtree),
]


def test_a_writers_room_behind_the_last_segment_is_in_order(folder: Path) -> None:
    known = glance(folder)
    data = last_files(folder).data
    data.write_bytes(data.read_bytes() + bytes(ROOM))
    assert glance(folder) == known is not None
    data.write_bytes(data.read_bytes() + bytes(1))
    assert glance(folder) is None


@pytest.mark.parametrize(("what", "disturb"), DISORDER, ids=[what for what, _ in DISORDER])
def test_what_recovery_has_to_do_with_is_not_in_order(
    folder: Path, what: str, disturb: Callable[[Path], object]
) -> None:
    assert glance(folder) is not None
    disturb(folder)
    assert glance(folder) is None, what


def test_what_was_brought_in_order_is_in_order(folder: Path) -> None:
    torn(last_files(folder).data, 8)
    with opened(folder.parent) as topic:
        assert payloads(topic) == [b"c", b"d", b"e", b"f"]
    assert glance(folder) is not None


def test_a_gap_behind_the_last_segment_is_not_in_order(folder: Path) -> None:
    with opened(folder.parent) as topic:
        topic._gaps.add([Gap(topic.end, topic.end + 1, "corrupt")])
    assert glance(folder) is None


@given(name=st.sampled_from(["index", "synced", "arrows", "gaps"]), data=st.binary(max_size=300))
def test_files_of_any_bytes_are_no_topic_in_order(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = made(Path(directory))
        files = last_files(folder)
        for path in [folder / "gaps.jsonl", folder / "gaps.copy.jsonl"] if name == "gaps" else [files.data]:
            path.with_suffix(path.suffix if name == "gaps" else f".{name}").write_bytes(data)
        assert glance(folder) is None


def test_another_format_is_named(folder: Path) -> None:
    files = last_files(folder)
    told = read_synced(OS, files)
    assert told is not None
    words = synced_words(*told, version=2, mark=files.mark)
    files.synced.write_bytes(b"".join(word.to_bytes(8, "little", signed=True) for word in words))
    with pytest.raises(UnknownFormat, match="has format 2"):
        glance(folder)


def test_a_batch_that_is_damaged_is_found_when_the_topic_is_opened(folder: Path) -> None:
    flipped(last_files(folder).data, last_files(folder).data.stat().st_size - 60)
    assert glance(folder) is not None
    with opened(folder.parent) as topic:
        assert [(gap.begin, gap.end) for gap in topic.gaps() if gap.reason == "corrupt"] == [(4, 6)]


@given(seed=st.integers(0, 1 << 32), number=st.integers(1, 3))
def test_whatever_happened_what_is_in_order_ends_where_it_ends_when_it_is_opened(seed: int, number: int) -> None:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        folder = made(Path(directory))
        for path in dice.sample(sorted(path for path in folder.iterdir() if path.stat().st_size), number):
            dice.choice(list(DAMAGES.values()))(path, dice)
        found = glance(folder)
        log = Log(Path(directory), fs=UNSYNCED)
        topic = log.topic("t")
        if found is not None:
            assert topic.end == found.end
            assert [gap for gap in topic.gaps() if gap.reason != "corrupt"] == list(found.gaps)
            assert all(gap.counts for gap in topic.gaps()), "of what is lost the source is known"
        log.close()

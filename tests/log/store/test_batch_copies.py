"""Copies of batch documents: a damaged batch retains its counts, and an internal topic's batch is restored."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from penstock.counts import Counts, by_bucket
from penstock.log import Topic
from penstock.log.settings import TopicSettings
from penstock.log.store import batch_copies
from penstock.log.store.segment_files import SegmentFiles
from penstock.testing import CrashingFileSystem, cut_tail, flip_bit, zero_page
from tests.fuzzed import journals
from tests.log.log_helpers import BUCKET, UNSYNCED, flip, last_files, opened, origin, payloads, rows

HARMS = [flip_bit, cut_tail, zero_page]
Harm = Callable[[Path, random.Random], str]


def write(topic: Topic, batches: int = 6) -> Counts:
    """Append batches with different counts and return the sum."""
    counts = Counts()
    for number in range(batches):
        counts_of_batch = {"taken": number + 2, "accepted": 1, f"{BUCKET - 60}@accepted": 1}
        topic.append(rows(b"%d" % number * 900, b"x"), origin(counts=counts_of_batch)).result(10)
        counts.absorb({"taken": number + 2, "accepted": 2})
    return counts


def counted(topic: Topic) -> Counts:
    """Return all counts of rows and gaps."""
    total = Counts()
    for stored in topic.reader().whole_batches():
        for counts in by_bucket(BUCKET, stored.origin.counts).values():
            total.absorb(counts)
    for gap in topic.gaps():
        assert gap.received is not None
        for buckets in gap.received.values():
            for counts_of_bucket in buckets.values():
                total.absorb(counts_of_bucket)
    return total


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("size", [1, 4000, 1 << 20])
def test_damage_of_one_file_loses_no_count(tmp_path: Path, harm: Harm, size: int) -> None:
    small = TopicSettings(segment_size_limit=size)
    for seed in range(12):
        folder = tmp_path / str(seed)
        with opened(folder, settings=small) as topic:
            counts = write(topic)
        dice = random.Random(seed)
        harm(dice.choice(sorted(path for path in topic.path.iterdir() if path.stat().st_size)), dice)
        with opened(folder, settings=small) as topic:
            topic.verify()
            assert counted(topic) == counts
        with opened(folder, settings=small) as topic:
            assert counted(topic) == counts


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_batches_of_an_internal_topic_are_restored(tmp_path: Path, harm: Harm, size: int) -> None:
    small = TopicSettings(segment_size_limit=size)
    for seed in range(6):
        with opened(tmp_path / str(seed), "_own", small) as topic:
            write(topic)
            before = payloads(topic)
        dice = random.Random(seed)
        harm(dice.choice(sorted(topic.path.glob("*.arrows"))), dice)
        with opened(tmp_path / str(seed), "_own", small) as topic:
            assert topic.verify() == topic.gaps() == []
            assert payloads(topic) == before


@pytest.mark.parametrize("seed", range(8))
def test_restored_batch_survives_a_power_cut(tmp_path: Path, seed: int) -> None:
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, "_internal", fs=fs) as topic:
        write(topic, 2)
    files = last_files(topic.path)
    whole = files.data.read_bytes()
    flip(files.data, len(whole) - 500)
    fs = CrashingFileSystem(tmp_path, seed)
    assert batch_copies.restore_batches(fs, files)
    fs.crash()
    assert files.data.read_bytes() == whole


def test_compacted_segment_preserves_the_counts_of_each_batch(tmp_path: Path) -> None:
    for name in ("t", "_own"):
        with opened(tmp_path, name, TopicSettings(segment_size_limit=4000, compression="zstd")) as topic:
            counts = write(topic)
            topic.compact()
            zero_page(min(topic.path.glob("*.arrows")), random.Random(3))
            topic.verify()
            if name == "t":
                assert topic.gaps()
                assert counted(topic) == counts


def test_incomplete_journal_is_rebuilt_and_another_segments_journal_is_ignored(tmp_path: Path) -> None:
    with opened(tmp_path) as topic:
        write(topic)
    files = last_files(topic.path)
    complete = files.copies.read_bytes()
    for harmed in (b"", complete[:-3], complete[:5] + b"?" + complete[6:], complete + b"more\n"):
        files.copies.write_bytes(harmed)
        with opened(tmp_path) as topic:
            assert files.copies.read_bytes() == complete
            assert topic.gaps() == []
    files.copies.unlink()
    with opened(tmp_path) as topic:
        assert files.copies.read_bytes() == complete
    with opened(tmp_path, "other") as topic:
        write(topic)
    last_files(topic.path).copies.write_bytes(complete)
    assert batch_copies.read(last_files(topic.path)).copies == []


def test_undone_append_has_no_copy(tmp_path: Path) -> None:
    with opened(tmp_path, fs=UNSYNCED) as topic:
        write(topic, 2)
        active = topic.writer.active()
        mark = active.state.copy()
        write(topic, 1)
        active.roll_back(mark)
        active.release()
        assert [copy.base for copy in batch_copies.read(active.files).copies] == [0, 2]


@settings(deadline=None)
@given(journals("segment", "base", "rows", "crc", "at", "data", "source", "bucket", "counts"))
def test_random_bytes_are_read_without_an_error(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = SegmentFiles(Path(folder) / "t", 0)
        files.copies.parent.mkdir()
        files.copies.write_bytes(data)
        for copy in batch_copies.read(files).copies:
            assert copy.end > copy.base >= 0


def test_damaged_frame_is_not_stored_and_counted_again(tmp_path: Path) -> None:
    def drain(topic: Topic) -> None:
        for end in (10, 20):
            frame = origin(counts={"taken": 1}, buffer="in.1", begin=end - 10, end=end)
            topic.append(rows(b"%d" % end), frame).result(10)

    with opened(tmp_path) as topic:
        drain(topic)
    files = last_files(topic.path)
    files.data.write_bytes(files.data.read_bytes()[:-50])
    with opened(tmp_path) as topic:
        drain(topic)  # its position in the log buffer was lost too
        assert payloads(topic) == [b"10"]
        assert counted(topic) == {"taken": 2}
        assert topic.end == 2

"""Verification on demand."""

import errno

import pytest

from penstock.log import Gap, LogFull, TopicReader, TopicSettings
from penstock.log.store import index
from penstock.testing import CrashingFileSystem
from tests.log.log_helpers import fill, flip, offsets, opened, payloads

SMALL = TopicSettings(segment_size_limit=1)


def damage(topic, first):
    file = topic.path / f"{first:020}.arrows"
    flip(file, file.stat().st_size - 60)


def test_verify_reports_nothing_for_a_sound_topic(tmp_path):
    with opened(tmp_path, settings=SMALL) as topic:
        fill(topic, [b"a"], [b"b"])
        assert topic.verify(0, topic.end) == []
        assert not (topic.path / "quarantine").exists()


def test_damaged_batch_becomes_a_gap_and_is_quarantined(tmp_path):
    with opened(tmp_path, settings=SMALL) as topic:
        fill(topic, *([b"%d" % n] * 2 for n in range(6)))
        damage(topic, 4)
        damage(topic, 10)
        assert [(gap.begin, gap.end) for gap in topic.verify(0, 10)] == [(4, 6)]
        assert [(gap.begin, gap.end) for gap in topic.verify(0, 12)] == [(10, 12)]
        assert topic.verify(0, 12) == []
        quarantined = sorted((topic.path / "quarantine").iterdir())
        damaged = topic.path / f"{4:020}.arrows"
        assert damaged.read_bytes().endswith(quarantined[0].read_bytes())
        assert len(quarantined) == 2
        fill(topic, [b"new"])
        assert offsets(topic) == [0, 1, 2, 3, 6, 7, 8, 9, 12]
    with opened(tmp_path) as topic:
        assert [gap.begin for gap in topic.gaps()] == [4, 10]
        assert topic.end == 13


def test_index_of_sealed_segment_is_rebuilt(tmp_path):
    with opened(tmp_path, settings=SMALL) as topic:
        fill(topic, [b"a"], [b"b"])
        index = topic.path / f"{0:020}.index"
        good = index.read_bytes()
        index.unlink()
        assert topic.verify(0, 2) == []
        assert index.read_bytes() == good


def test_truncated_end_of_open_segment_becomes_a_gap(tmp_path):
    with opened(tmp_path, settings=TopicSettings(segment_size_limit=2500)) as topic:
        fill(topic, *([b"%d" % n] for n in range(8)))
        first = topic.path / f"{0:020}.arrows"
        with open(first, "r+b") as file:
            file.truncate(first.stat().st_size - 8)
        new_gaps = topic.verify(0, 8)
        assert sum(gap.end - gap.begin for gap in new_gaps) == 1
        assert len(payloads(TopicReader(topic.path))) == 7


def test_verify_on_a_full_disk_stores_no_gap(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, settings=SMALL, fs=fs) as topic:
        fill(topic, [b"a"], [b"b"])
        damage(topic, 0)
        fs.free = 0
        with pytest.raises(LogFull):
            topic.verify(0, 2)
        assert topic.gaps() == []
        fs.free = None
        assert [(gap.begin, gap.end) for gap in topic.verify(0, 2)] == [(0, 1)]
        assert topic.gaps() == TopicReader(topic.path).gaps() == [Gap(0, 1, "corrupt", topic.gaps()[0].counts, {})]


def test_wrong_index_of_active_segment_is_rewritten_and_appends_continue(tmp_path):
    with opened(tmp_path) as topic:
        fill(topic, [b"a"], [b"b", b"c"])
        file = topic.path / f"{0:020}.index"
        good = file.read_bytes()
        for harm in (good[:80], b"", good[:100] + bytes([good[100] ^ 1]) + good[101:], b"x" * len(good)):
            file.write_bytes(harm)
            assert topic.verify() == []
            assert file.read_bytes() == good
        fill(topic, [b"d"])
        assert payloads(topic) == [b"a", b"b", b"c", b"d"]
        assert payloads(TopicReader(topic.path)) == [b"a", b"b", b"c", b"d"]


def test_sound_index_that_differs_from_the_data_is_rewritten(tmp_path):
    with opened(tmp_path, settings=SMALL) as topic:
        fill(topic, [b"a"], [b"b"])
        file = topic.path / f"{0:020}.index"
        good = file.read_bytes()
        wrong = index.unpack(good[index.HEADER_SIZE :]).copy()
        wrong["bucket"] += 60
        file.write_bytes(good[: index.HEADER_SIZE] + index.pack(map(tuple, wrong)).tobytes())
        assert topic.verify() == []
        assert file.read_bytes() == good


def test_batches_behind_an_outdated_synced_length_are_not_lost(tmp_path):
    """After a power cut the synced length and a part of the index are old; then the recovery finds the disk full."""
    with opened(tmp_path) as topic:
        synced, file = topic.path / f"{0:020}.synced", topic.path / f"{0:020}.index"
        outdated = synced.read_bytes()
        fill(topic, [b"a"], [b"b"], [b"c"])
    synced.write_bytes(outdated)
    begin = index.HEADER_SIZE + index.RECORD.itemsize
    file.write_bytes(
        file.read_bytes()[:begin] + bytes(index.RECORD.itemsize) + file.read_bytes()[begin + index.RECORD.itemsize :]
    )
    fs = CrashingFileSystem(tmp_path)
    fs.failures["open"] = errno.ENOSPC
    with opened(tmp_path, fs=fs) as topic:
        fs.failures.clear()
        assert topic.verify(0, 3) == []
        assert len(index.unpack(file.read_bytes()[index.HEADER_SIZE :])) == 2
        fill(topic, [b"d"])
        assert payloads(topic) == [b"a", b"b", b"c", b"d"]
        assert topic.gaps() == []


def test_rows_behind_an_outdated_synced_length_are_visible_after_a_sweep(tmp_path):
    """The start finds the disk full; no append repeats the recovery."""
    with opened(tmp_path) as topic:
        synced = topic.path / f"{0:020}.synced"
        outdated = synced.read_bytes()
        fill(topic, [b"a"], [b"b"])
    synced.write_bytes(outdated)
    fs = CrashingFileSystem(tmp_path)
    fs.failures["open"] = errno.ENOSPC
    with opened(tmp_path, fs=fs) as topic:
        assert payloads(topic) == []
        topic.sweep()
        assert payloads(topic) == []
        fs.failures.clear()
        topic.sweep()
        assert payloads(topic) == payloads(TopicReader(topic.path)) == [b"a", b"b"]

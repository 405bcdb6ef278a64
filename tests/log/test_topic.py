"""Appends to a topic: offsets, timestamps, groups, limits, full disks."""

import errno
import os
import threading
from collections.abc import Container
from concurrent.futures import Future, wait
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from penstock.log import (
    Appended,
    LogClosed,
    LogFull,
    MessageTooLarge,
    OutcomeInDoubt,
    ProducerSequence,
    TopicSettings,
    WriteFailed,
)
from penstock.log.read.segment_view import timestamps
from penstock.log.settings import COMMIT_BYTES
from penstock.log.store import segment
from penstock.records import EMPTY_BODY
from penstock.testing import CrashingFileSystem, FakeClock
from tests.log.log_helpers import BUCKET, fill, last_files, offsets, opened, origin, payloads, rows


def times(topic):
    return np.concatenate([timestamps(stored.batch) for stored in topic.reader().read(0)])


def test_append_gets_dense_offsets_and_the_time_of_the_clock(tmp_path):
    clock = FakeClock(1000.0)
    with opened(tmp_path, clock=clock) as topic:
        appended = topic.append(rows(b"a", b"b"), origin()).result(10)
        assert (appended.first, appended.count, topic.start, topic.end) == (0, 2, 0, 2)
        assert appended.timestamps.tolist() == [1_000_000_000, 1_000_000_001]
        assert topic.append(rows(b"c"), origin()).result(10).first == 2


def test_timestamps_increase_after_a_clock_jump_back_and_a_restart(tmp_path):
    clock = FakeClock(1000.0)
    with opened(tmp_path, clock=clock) as topic:
        fill(topic, [b"a"] * 3)
    clock.jump(-500)
    with opened(tmp_path, clock=clock) as topic:
        fill(topic, [b"b"])
        assert times(topic).tolist() == [10**9, 10**9 + 1, 10**9 + 2, 10**9 + 3]


def test_64_concurrent_callers_get_dense_offsets_and_strictly_increasing_timestamps(tmp_path):
    results: list[Appended] = []

    def call(topic, number):
        for turn in range(8):
            results.append(topic.append(rows(*[b"%d-%d" % (number, turn)] * 3), origin()).result(30))

    with opened(tmp_path, settings=TopicSettings(segment_size_limit=20_000)) as topic:
        callers = [threading.Thread(target=call, args=(topic, number)) for number in range(64)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert offsets(topic) == list(range(64 * 8 * 3))
        assert (np.diff(times(topic)) > 0).all()
        stored = payloads(topic)
    assert sorted(answer.first for answer in results) == list(range(0, 64 * 8 * 3, 3))
    assert sorted(stored) == sorted(b"%d-%d" % (n, t) for n in range(64) for t in range(8) for _ in range(3))


def test_waiting_appends_of_one_source_and_bucket_become_one_batch(tmp_path):
    with opened(tmp_path) as topic, topic._writing:
        held = [topic.append(rows(b"0"), origin())]
        held += [topic.append(rows(b"%d" % n), origin(counts={"taken": n}, first=n, last=n)) for n in range(1, 5)]
        other_append = topic.append(rows(b"x"), origin("other"))
        topic._writing.release()
        wait([*held, other_append], 10)
        topic._writing.acquire()
        batches = [(s.origin.source, s.rows, dict(s.origin.counts)) for s in topic.reader().whole_batches()]
    assert batches == [("events", 5, {"taken": 10}), ("other", 1, {})]
    assert held[-1].result().count == 1


def test_appends_over_the_commit_limit_go_into_the_next_commit(tmp_path):
    large = rows(b"x" * (COMMIT_BYTES // 3))
    with opened(tmp_path) as topic:
        answers = [topic.append(large, origin()) for _ in range(5)]
        assert [answer.result(30).first for answer in answers] == [0, 1, 2, 3, 4]


def test_stored_frames_of_a_buffer_are_skipped_after_a_restart(tmp_path):
    def frame(topic, begin, end):
        return topic.append(rows(b"%d" % begin), origin(buffer="b", begin=begin, end=end)).result(10).count

    with opened(tmp_path) as topic:
        assert [frame(topic, 0, 64), frame(topic, 64, 96), frame(topic, 0, 64), frame(topic, 64, 96)] == [1, 1, 0, 0]
    with opened(tmp_path) as topic:
        assert topic.buffer_position("b") == 96
        assert topic.buffer_position("c") == 0
        assert [frame(topic, 64, 96), frame(topic, 96, 128)] == [0, 1]
        assert payloads(topic) == [b"0", b"64", b"96"]


def test_stored_total_is_that_of_the_series_before_a_frame_after_a_restart(tmp_path):
    with opened(tmp_path) as topic:
        frames = [("udp.a", 0, 2), ("udp.a", 32, 5), ("udp.a~b", 32, 4), ("udp.c", 0, 7), ("tcp.a", 0, 9)]
        for buffer, begin, total in frames:
            frame = origin(buffer=buffer, begin=begin, end=begin + 32, total=total)
            topic.append(rows(b"x"), frame).result(10)
    with opened(tmp_path) as topic:
        assert [topic.stored_total("udp.a", begin) for begin in (32, 64)] == [4, 5]
        assert [topic.stored_total(buffer, 0) for buffer in ("udp.a~b", "udp.a~d", "udp.c~d", "tcp.b")] == [5, 5, 7, 0]


@pytest.mark.parametrize("lost", [False, True])
def test_positions_survive_many_segments_and_the_loss_of_their_file(tmp_path, lost):
    settings = TopicSettings(segment_size_limit=1)
    with opened(tmp_path, settings=settings) as topic:
        for n in range(6):
            name = "ab"[n % 2]
            topic.append(rows(b"x"), origin(buffer=name, begin=n * 32, end=n * 32 + 32)).result(10)
        files = last_files(topic.path)
    if lost:
        files.start_state.unlink()
    with opened(tmp_path, settings=settings) as topic:
        assert (topic.buffer_position("a"), topic.buffer_position("b")) == (160, 192)


def test_counts_without_rows_are_stored_in_an_internal_topic(tmp_path):
    with opened(tmp_path, "_receipts") as topic:
        topic.append(EMPTY_BODY, origin(counts={"taken": 3, "empty": 3})).result(10)
        topic.append(EMPTY_BODY, origin(counts={"taken": 2, "empty": 2})).result(10)
    with opened(tmp_path, "_receipts") as topic:
        assert [dict(s.origin.counts) for s in topic.reader().whole_batches()] == [
            {"taken": 3, "empty": 3},
            {"taken": 2, "empty": 2},
        ]
        assert len(list(topic.reader().whole_batches(1))) == 1


def test_empty_append_to_a_topic_stores_nothing_and_must_have_no_counts(tmp_path):
    with opened(tmp_path) as topic:
        assert topic.append(EMPTY_BODY, origin()).result(10).count == 0
        assert topic.end == 0
        with pytest.raises(ValueError, match="counts"):
            topic.append(EMPTY_BODY, origin(counts={"taken": 1}))


def test_append_with_a_message_over_the_limit_is_refused_completely(tmp_path):
    with opened(tmp_path, settings=TopicSettings(message_size_limit=100)) as topic:
        with pytest.raises(MessageTooLarge):
            topic.append(rows(b"a", b"b" * 101), origin()).result(10)
        topic.append(rows(*[b"c" * 100] * 5), origin()).result(10)
        assert topic.end == 5


def test_body_of_another_schema_is_a_value_error(tmp_path):
    with opened(tmp_path) as topic, pytest.raises(ValueError, match="columns"):
        topic.append(pa.record_batch({"payload": [b"x"]}), origin())


def test_segments_roll_by_size_and_by_the_age_of_the_oldest_entry(tmp_path):
    clock = FakeClock()
    settings = TopicSettings(segment_size_limit=4000, rotate_after=100)
    with opened(tmp_path, settings=settings, clock=clock) as topic:
        fill(topic, [b"a"])
        clock.advance(99)
        fill(topic, [b"b"])
        assert len(list(topic.path.glob("*.arrows"))) == 1
        clock.advance(1)
        fill(topic, [b"c"])
        assert len(list(topic.path.glob("*.arrows"))) == 2
        fill(topic, [b"d" * 4000], [b"e"])
        assert sorted(p.stem for p in topic.path.glob("*.arrows")) == [f"{n:020}" for n in (0, 2, 4)]
        assert payloads(topic) == [b"a", b"b", b"c", b"d" * 4000, b"e"]


def test_subscribers_see_synced_batches_until_they_unsubscribe(tmp_path):
    seen = []
    with opened(tmp_path) as topic:
        topic.subscribe(callback := lambda stored: seen.append((stored.base, stored.batch.num_rows, topic.end)))
        topic.subscribe(lambda stored: 1 / 0)
        fill(topic, [b"a", b"b"], [b"c"])
        topic.wait_until_idle()
        topic.unsubscribe(callback)
        fill(topic, [b"d"])
        topic.wait_until_idle()
    assert seen == [(0, 2, 2), (2, 1, 3)]


def test_cancelled_waiting_append_is_not_stored(tmp_path):
    with opened(tmp_path) as topic:
        with topic._writing:
            topic.append(rows(b"a"), origin())
            second = topic.append(rows(b"b"), origin())
            cancelled = second.cancel()
        topic.wait_until_idle()
        assert payloads(topic) == ([b"a"] if cancelled else [b"a", b"b"])


def test_closed_topic_refuses_appends_but_stores_earlier_appends(tmp_path):
    with opened(tmp_path) as topic:
        waiting: list[Future[Appended]] = [topic.append(rows(b"a"), origin()) for _ in range(20)]
    assert all(answer.result(0).count == 1 for answer in waiting)
    with pytest.raises(LogClosed):
        topic.append(rows(b"b"), origin()).result(0)


def test_append_fails_completely_on_a_full_disk_and_works_once_there_is_space(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        fill(topic, [b"a", b"b"])
        size = last_files(topic.path).data.stat().st_size
        for free in (0, 1, 500, 700):
            fs.free = free
            with pytest.raises(LogFull):
                topic.append(rows(b"lost" * 100), origin()).result(10)
            assert payloads(topic) == [b"a", b"b"]
            assert last_files(topic.path).data.stat().st_size == size
        fs.free = None
        fill(topic, [b"c"])
        assert (payloads(topic), offsets(topic)) == ([b"a", b"b", b"c"], [0, 1, 2])
    with opened(tmp_path) as topic:
        assert (payloads(topic), topic.gaps()) == ([b"a", b"b", b"c"], [])


def test_segment_is_sealed_before_the_next_one_exists(tmp_path, monkeypatch):
    steps, seal, create = [], segment.Segment.seal, segment.create
    monkeypatch.setattr(segment.Segment, "seal", lambda sealed: (seal(sealed), steps.append("sealed"))[0])
    monkeypatch.setattr(segment, "create", lambda *arguments: (steps.append("created"), create(*arguments))[1])
    with opened(tmp_path, settings=TopicSettings(segment_size_limit=1)) as topic:
        fill(topic, [b"a"], [b"b"], [b"c"])
    assert steps == ["created", "sealed", "created", "sealed", "created"]


def test_failed_new_segment_on_a_full_disk_leaves_no_files(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs, settings=TopicSettings(segment_size_limit=1)) as topic:
        fill(topic, [b"a"])
        for free in range(0, 801, 50):
            fs.free = free
            with pytest.raises(LogFull):
                topic.append(rows(b"b"), origin()).result(10)
        fs.free = None
        fill(topic, [b"b"], [b"c"])
        assert (payloads(topic), topic.gaps()) == ([b"a", b"b", b"c"], [])


@pytest.mark.survives("log", "failing disk")
def test_failed_sync_is_undone_and_reported(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        fill(topic, [b"a"])
        fs.failures["sync"] = 5
        with pytest.raises(WriteFailed):
            topic.append(rows(b"lost"), origin()).result(10)
        fs.failures.clear()
        fill(topic, [b"b"])
        assert payloads(topic) == [b"a", b"b"]


class FailingFiles(CrashingFileSystem):
    """Fails the next operations with these numbers."""

    failing: Container[int] = ()
    number = 0

    def check(self, era, operation):
        super().check(era, operation)
        self.number += 1
        if self.number - 1 in self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def fail(self, operations):
        self.failing, self.number = operations, 0


def refusal(topic, payload):
    """The kind of the error of an append under a producer's number, or None."""
    future = topic.append(rows(payload), origin(), producer=ProducerSequence("p", 0))
    return type(error) if (error := future.exception(10)) else None


@pytest.mark.survives("log", "failing disk")
def test_refused_append_never_comes_back_and_one_in_doubt_may(tmp_path):
    outcomes = set()
    for begin, length, seed in product(range(10), (1, 2, 3, 50), range(5)):
        folder = tmp_path / f"{begin}-{length}-{seed}"
        folder.mkdir()
        fs = FailingFiles(folder, seed)
        with opened(folder, fs=fs) as topic:
            fill(topic, [b"a"])
            fs.fail(range(begin, begin + length))
            answer = refusal(topic, b"b")
            fs.stop_after = 0
        fs.fail(())
        fs.crash()
        with opened(folder, fs=fs) as topic:
            assert topic.gaps() == []
            stored = payloads(topic)
            assert stored[:1] == [b"a"]
            outcomes.add((answer, b"b" in stored))
            assert refusal(topic, b"b") is None
            assert payloads(topic) == [b"a", b"b"]
    assert outcomes == {(None, True), (WriteFailed, False), (OutcomeInDoubt, True), (OutcomeInDoubt, False)}


def test_append_behind_one_in_doubt_is_refused_without_doubt(tmp_path):
    fs = FailingFiles(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        fill(topic, [b"a"])
        fs.fail(range(1000))
        assert [refusal(topic, payload) for payload in (b"in doubt", b"not written")] == [OutcomeInDoubt, WriteFailed]
        fs.fail(())
        assert refusal(topic, b"b") is None
        assert payloads(topic) == [b"a", b"b"]


def test_append_that_a_full_disk_tears_is_in_doubt_if_it_cannot_be_cut(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        fill(topic, [b"a"])
        fs.free, fs.failures = 700, {"truncate": errno.EIO}
        assert refusal(topic, b"x" * 5000) is OutcomeInDoubt
        fs.free, fs.failures = 700, {}
        assert refusal(topic, b"x" * 5000) is LogFull


def test_sweep_cuts_an_append_in_doubt(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        fill(topic, [b"a"])
        fs.failures["sync"] = errno.EIO
        assert refusal(topic, b"in doubt") is OutcomeInDoubt
        fs.failures.clear()
        assert not topic.writer.active().clean
        topic.sweep()
        assert topic.writer.active().clean


def test_later_frames_of_a_buffer_fail_until_the_failed_frame_is_retried(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:

        def frame(n):
            return topic.append(rows(b"%d" % n), origin(buffer="b", begin=32 * n, end=32 * n + 32))

        frame(0).result(10)
        fs.free = 0
        assert isinstance(frame(1).exception(10), LogFull)
        fs.free = None
        assert isinstance(frame(2).exception(10), WriteFailed)
        assert isinstance(frame(3).exception(10), WriteFailed)
        assert [frame(n).result(10).count for n in (1, 2, 3)] == [1, 1, 1]
        assert payloads(topic) == [b"0", b"1", b"2", b"3"]


def test_reader_moved_past_failed_frames_continues_at_its_second_attempt(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:

        def frame(n):
            return topic.append(rows(b"%d" % n), origin(buffer="b", begin=32 * n, end=32 * n + 32))

        fs.free = 0
        assert isinstance(frame(1).exception(10), LogFull)
        fs.free = None
        assert isinstance(frame(9).exception(10), WriteFailed)
        assert frame(9).result(10).count == 1


def test_written_append_is_answered_before_and_visible_after_the_sync(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs, settings=TopicSettings(durability="written")) as topic:
        fs.failures["sync"] = 5
        answer = topic.append(rows(b"a"), origin()).result(10)
        assert (answer.first, answer.durability) == (0, "written")
        topic.wait_until_idle()
        assert (payloads(topic), topic.end) == ([], 0)
        fs.failures.clear()
        assert topic.append(rows(b"b"), origin()).result(10).first == 1
        topic.wait_until_idle()
        assert payloads(topic) == [b"a", b"b"]


def test_origin_of_a_batch_is_read_back(tmp_path):
    sent = origin(codec="plog", counts={"taken": 4, "accepted": 1}, buffer="b", begin=32, end=64)
    with opened(tmp_path) as topic:
        topic.append(rows(b"a"), sent).result(10)
        (stored,) = topic.reader().read(0)
    assert stored.origin == sent
    assert stored.origin.bucket == BUCKET


WRITTEN = TopicSettings(durability="written")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("killed", [False, True])
def test_rows_whose_sync_failed_are_written_again_before_readers_see_them(tmp_path, seed, killed):
    fs = CrashingFileSystem(tmp_path, seed)
    with opened(tmp_path, fs=fs, settings=WRITTEN) as topic:
        fill(topic, [b"first"])
        topic.wait_until_idle()
        fs.failures["sync"] = 5
        fill(topic, [b"a" * 2000, b"b" * 2000])
        topic.wait_until_idle()
        assert payloads(topic) == [b"first"]
        if not killed:
            fs.failures.clear()
            fill(topic, [b"c"])
            topic.wait_until_idle()
    fs.failures.clear()
    expected = [b"first", b"a" * 2000, b"b" * 2000, *([] if killed else [b"c"])]
    with opened(tmp_path, fs=fs, settings=WRITTEN) as topic:
        assert payloads(topic) == expected[:4]
    fs.crash()
    with opened(tmp_path, fs=fs) as topic:
        assert (payloads(topic), topic.gaps()) == (expected, [])


def test_rows_are_refused_while_the_disk_fails_so_that_memory_is_bounded(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs, settings=WRITTEN) as topic:
        fs.failures["sync"] = 5
        fill(topic, [b"a"])
        topic.wait_until_idle()
        with pytest.raises(WriteFailed):
            fill(topic, [b"refused"])
        fs.failures.clear()
        fill(topic, [b"b"])
        topic.wait_until_idle()
        assert payloads(topic) == [b"a", b"b"]


def test_sweep_retries_a_failed_sync(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs, settings=WRITTEN) as topic:
        fs.failures["sync"] = 5
        fill(topic, [b"a"])
        topic.wait_until_idle()
        fs.failures.clear()
        topic.sweep()
        assert payloads(topic) == [b"a"]

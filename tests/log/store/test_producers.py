"""Producers: a number comes in once, also after a restart, a crash, a new segment, a compaction."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import Limits, Log, LogFull, OutOfSequence, ProducerSequence, TopicSettings
from penstock.log.store.producers import MAX_PRODUCERS, REMEMBERED, Producers, Taken
from penstock.testing import CrashingFileSystem, FakeClock
from tests.log.log_helpers import UNSYNCED, last_files, opened, origin, payloads, rows


def append(topic, sequence, *values, name="p"):
    return topic.append(rows(*values), origin(), producer=ProducerSequence(name, sequence))


def test_a_repeated_number_is_answered_as_the_first_time_and_stored_once(tmp_path):
    with opened(tmp_path) as topic:
        first = append(topic, 5, b"a", b"b").result(10)
        append(topic, 6, b"c").result(10)
        again = append(topic, 5, b"a", b"b").result(10)
        assert (again.first, again.count) == (first.first, first.count) == (0, 2)
        assert again.timestamps.tolist() == first.timestamps.tolist()
        assert payloads(topic) == [b"a", b"b", b"c"]


def test_a_gap_and_what_is_older_than_remembered_are_refused(tmp_path):
    with opened(tmp_path) as topic:
        for number in range(REMEMBERED + 1):
            append(topic, number, b"x").result(10)
        with pytest.raises(OutOfSequence, match="leaves a gap"):
            append(topic, REMEMBERED + 2, b"x").result(10)
        with pytest.raises(OutOfSequence, match="older"):
            append(topic, 0, b"x").result(10)
        assert append(topic, 1, b"x").result(10).first == 1
        assert append(topic, 0, b"x", name="other").result(10).first == REMEMBERED + 1


def test_requests_that_wait_together_are_told_apart(tmp_path):
    with opened(tmp_path) as topic:
        with topic._writing:
            held = append(topic, 0, b"0")
            many = [append(topic, number, b"%d" % number) for number in (1, 1, 2, 4, 3, 1)]
        assert held.result(10).first == 0
        assert isinstance(many[3].exception(10), OutOfSequence)
        assert [many[n].result(10).first for n in (0, 1, 2, 4, 5)] == [1, 1, 2, 3, 1]
        assert payloads(topic) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("lost", [False, True])
def test_numbers_are_known_after_a_restart_and_over_segments(tmp_path, lost):
    settings = TopicSettings(segment_size_limit=1)
    with opened(tmp_path, settings=settings) as topic:
        for number in range(5):
            append(topic, number, b"%d" % number).result(10)
        files = last_files(topic.path)
    if lost:
        files.known.unlink()
    with opened(tmp_path, settings=settings) as topic:
        assert [append(topic, number, b"?").result(10).first for number in (3, 4, 5)] == [3, 4, 5]
        assert payloads(topic) == [b"0", b"1", b"2", b"3", b"4", b"?"]


def test_a_number_that_failed_is_the_next_one(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        append(topic, 0, b"a").result(10)
        fs.free = 0
        with pytest.raises(LogFull):
            append(topic, 1, b"lost").result(10)
        fs.free = None
        assert append(topic, 1, b"b").result(10).first == 1


def test_a_silent_producer_is_forgotten_after_its_time(tmp_path):
    clock = FakeClock()
    log = Log(tmp_path, clock=clock, fs=UNSYNCED, transactions=Limits(producer_memory=100))
    topic = log.topic("t", create=True)
    append(topic, 7, b"a").result(10)
    clock.advance(99)
    log.sweep()
    assert append(topic, 7, b"a").result(10).first == 0
    clock.advance(2)
    log.sweep()
    assert append(topic, 50, b"b").result(10).first == 1
    log.close()


def test_retries_from_many_threads_are_stored_once(tmp_path):
    with opened(tmp_path) as topic:

        def call():
            for number in range(20):
                try:
                    assert append(topic, number, b"%d" % number).result(30).first == number
                except OutOfSequence:  # another one is ahead, or not there yet
                    return

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stored = payloads(topic)
        assert stored == [b"%d" % n for n in range(len(stored))]
        assert len(stored) == 20


@pytest.mark.parametrize(("name", "sequence"), [("", 0), ("x" * 201, 0), ("p", -1), ("p", 1 << 63)])
def test_what_cannot_be_a_producer_is_an_error(name, sequence):
    with pytest.raises(ValueError, match=r"producer|sequence"):
        ProducerSequence(name, sequence)


def test_only_so_many_producers_are_kept():
    producers = Producers(100)
    for number in range(MAX_PRODUCERS + 1):
        producers.enter(f"p{number}", Taken(0, number, 1, number))
    assert producers.find(ProducerSequence("p0", 9)) is None
    assert producers.find(ProducerSequence("p1", 0)) == Taken(0, 1, 1, 1)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=60))
def test_a_snapshot_tells_all_that_is_known(appends):
    producers, numbers = Producers(100), dict.fromkeys("abc", 0)
    for time, (name, count) in enumerate(appends):
        producers.enter(name, Taken(numbers[name], time, count, time))
        numbers[name] += 1
    loaded = Producers(100)
    loaded.load(producers.document())
    assert loaded.document() == producers.document()
    for name, following in numbers.items():
        for number in range(max(0, following - REMEMBERED), following):
            assert (
                loaded.find(ProducerSequence(name, number))
                == producers.find(ProducerSequence(name, number))
                is not None
            )

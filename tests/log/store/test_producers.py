"""Producers: each sequence number is stored once, also after a restart, a crash, a new segment, or a compaction."""

import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import Limits, Log, LogFull, OutOfSequence, ProducerSequence, TopicSettings
from penstock.log.store import index
from penstock.log.store.producers import (
    ANSWERS_PER_PRODUCER,
    EPOCH_BITS,
    Producers,
    StoredAppend,
    checksum,
)
from penstock.log.store.segment_files import SegmentFiles
from penstock.records import ANNOTATIONS, BODY, body, decode, encode
from penstock.testing import CrashingFileSystem, FakeClock
from tests.log.log_helpers import UNSYNCED, flip, last_files, opened, origin, payloads, rows


def append(topic, sequence, *values, name="p"):
    return topic.append(rows(*values), origin(), producer=ProducerSequence(name, sequence))


def test_repeated_number_gets_the_first_answer_and_is_stored_once(tmp_path):
    with opened(tmp_path) as topic:
        first = append(topic, 5, b"a", b"b").result(10)
        append(topic, 6, b"c").result(10)
        retried = append(topic, 5, b"a", b"b").result(10)
        assert (retried.first, retried.count) == (first.first, first.count) == (0, 2)
        assert retried.timestamps.tolist() == first.timestamps.tolist()
        assert payloads(topic) == [b"a", b"b", b"c"]


def test_number_after_a_gap_or_older_than_remembered_is_refused(tmp_path):
    with opened(tmp_path) as topic:
        for number in range(ANSWERS_PER_PRODUCER + 1):
            append(topic, number, b"x").result(10)
        with pytest.raises(OutOfSequence, match="leaves a gap"):
            append(topic, ANSWERS_PER_PRODUCER + 2, b"x").result(10)
        with pytest.raises(OutOfSequence, match="older"):
            append(topic, 0, b"x").result(10)
        assert append(topic, 1, b"x").result(10).first == 1
        assert append(topic, 0, b"x", name="other").result(10).first == ANSWERS_PER_PRODUCER + 1


@pytest.mark.parametrize("other_values", [[b"a", b"c"], [b"ab", b""], [b"b", b"a"], [b"a"], [b"a", None]])
def test_repeated_number_with_other_rows_is_refused_and_not_stored(tmp_path, other_values):
    with opened(tmp_path) as topic:
        append(topic, 0, b"a", b"b").result(10)
        with pytest.raises(OutOfSequence, match=r"'p': 0 is stored already, with other rows \(2 at offset 0\)"):
            append(topic, 0, *other_values).result(10)
        with topic._writing:
            held = append(topic, 1, b"held")
            first, same, differs = append(topic, 2, b"x"), append(topic, 2, b"x"), append(topic, 2, b"y")
        assert (held.result(10).first, first.result(10).first, same.result(10).first) == (2, 3, 3)
        assert isinstance(differs.exception(10), OutOfSequence)
        assert payloads(topic) == [b"a", b"b", b"held", b"x"]


def test_stored_append_is_found_by_its_number_and_a_question_uses_no_number_up(tmp_path):
    with opened(tmp_path) as topic:
        first = append(topic, 3, b"a", b"b").result(10)
        found = topic.find_append(ProducerSequence("p", 3)).result(10)
        assert (found.first, found.count) == (first.first, 2)
        assert found.timestamps.tolist() == first.timestamps.tolist()
        assert topic.find_append(ProducerSequence("p", 4)).result(10).count == 0
        assert topic.find_append(ProducerSequence("unknown", 4)).result(10).count == 0
        with pytest.raises(OutOfSequence, match="leaves a gap"):
            topic.find_append(ProducerSequence("p", 9)).result(10)
        with topic._writing:
            before = topic.find_append(ProducerSequence("p", 4))
            append(topic, 4, b"c")
            behind = topic.find_append(ProducerSequence("p", 4))
        assert (before.result(10).count, behind.result(10).count, behind.result(10).first) == (0, 1, 2)
        assert payloads(topic) == [b"a", b"b", b"c"]


def test_retry_is_answered_after_many_appends_and_thousands_of_producers(tmp_path):
    with opened(tmp_path) as topic:
        for number in range(20):
            append(topic, number, b"%d" % number).result(10)
        for number in range(2_500):
            last = append(topic, 0, b"x", name=f"p{number}")
        last.result(30)
        assert [append(topic, number, b"%d" % number).result(10).first for number in (0, 7, 19)] == [0, 7, 19]
        assert append(topic, 0, b"x", name="p0").result(10).first == 20
    with opened(tmp_path) as topic:
        assert [append(topic, number, b"%d" % number).result(10).first for number in (0, 7, 19)] == [0, 7, 19]
        assert topic.end == 2_520


def test_requests_that_wait_together_are_distinguished(tmp_path):
    with opened(tmp_path) as topic:
        with topic._writing:
            held = append(topic, 0, b"0")
            many = [append(topic, number, b"%d" % number) for number in (1, 1, 2, 4, 3, 1)]
        assert held.result(10).first == 0
        assert isinstance(many[3].exception(10), OutOfSequence)
        assert [many[n].result(10).first for n in (0, 1, 2, 4, 5)] == [1, 1, 2, 3, 1]
        assert payloads(topic) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("lost", [False, True])
def test_numbers_are_restored_after_a_restart_and_across_segments(tmp_path, lost):
    settings = TopicSettings(segment_size_limit=1)
    with opened(tmp_path, settings=settings) as topic:
        for number in range(5):
            append(topic, number, b"%d" % number).result(10)
        files = last_files(topic.path)
    if lost:
        files.start_state.unlink()
    with opened(tmp_path, settings=settings) as topic:
        assert [append(topic, number, b"%d" % number).result(10).first for number in (3, 4, 5)] == [3, 4, 5]
        with pytest.raises(OutOfSequence, match="stored already, with other rows"):
            append(topic, 4, b"?").result(10)
        assert payloads(topic) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def damage(files, number):
    position = int(index.unpack(files.index.read_bytes()[index.HEADER_SIZE :])["position"][number])
    flip(files.data, position + 300)


def test_damaged_append_is_stored_again_and_other_appends_are_deduplicated(tmp_path):
    with opened(tmp_path) as topic:
        for number in range(4):
            append(topic, number, b"%d" % number).result(10)
        files = last_files(topic.path)
    damage(files, 1)
    with opened(tmp_path) as topic:
        assert [append(topic, number, b"%d" % number).result(10).first for number in (0, 3, 1, 1, 2, 4)] == [
            *(0, 3, 4, 4, 2, 5)
        ]
        assert payloads(topic) == [b"0", b"2", b"3", b"1", b"4"]


def test_producer_of_a_damaged_append_continues_after_another_restart(tmp_path):
    with opened(tmp_path) as topic:
        for number in range(3):
            append(topic, number, b"%d" % number).result(10)
        files = last_files(topic.path)
    damage(files, 2)
    with opened(tmp_path):
        pass
    with opened(tmp_path) as topic:
        assert [append(topic, number, b"%d" % number).result(10).first for number in (1, 3)] == [1, 3]
        with pytest.raises(OutOfSequence, match="leaves a gap"):
            append(topic, 5, b"5").result(10)


def test_producer_continues_when_the_snapshot_is_damaged_too(tmp_path):
    settings = TopicSettings(segment_size_limit=1)
    with opened(tmp_path, settings=settings) as topic:
        for number in range(4):
            append(topic, number, b"%d" % number).result(10)
        append(topic, 0, b"other", name="q").result(10)
        files = last_files(topic.path)
    files.start_state.unlink()
    damage(SegmentFiles(topic.path, 3), 0)
    with opened(tmp_path, settings=settings) as topic:
        assert [append(topic, number, b"%d" % number).result(10).first for number in (2, 4)] == [2, 5]


def test_failed_number_is_expected_next(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    with opened(tmp_path, fs=fs) as topic:
        append(topic, 0, b"a").result(10)
        fs.free = 0
        with pytest.raises(LogFull):
            append(topic, 1, b"lost").result(10)
        fs.free = None
        assert append(topic, 1, b"b").result(10).first == 1


def test_idle_producer_is_forgotten_after_its_timeout(tmp_path):
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


@pytest.mark.parametrize(("before", "at_restart"), [(0, 86_300), (-86_400, 90_000), (-1_600_000_000, 1_600_000_000)])
def test_jump_of_the_clock_at_a_restart_forgets_no_producer(tmp_path, before, at_restart):
    clock, limits = FakeClock(), Limits(producer_memory=1_000)
    log = Log(tmp_path, clock=clock, fs=UNSYNCED, transactions=limits)
    clock.jump(before)
    append(log.topic("t", create=True), 7, b"a").result(10)
    log.close()
    clock.jump(at_restart)
    log = Log(tmp_path, clock=clock, fs=UNSYNCED, transactions=limits)
    clock.advance(900)  # a clock that is right again is believed after ten minutes
    log.sweep()
    assert append(log.topic("t"), 7, b"a").result(10).first == 0
    log.close()


def test_silence_before_a_restart_counts_and_downtime_does_not(tmp_path):
    clock, limits, settings = FakeClock(), Limits(producer_memory=1_000), TopicSettings(rotate_after=10)
    log = Log(tmp_path, settings, clock=clock, fs=UNSYNCED, transactions=limits)
    topic = log.topic("t", create=True)
    append(topic, 7, b"a").result(10)
    clock.advance(600)
    append(topic, 0, b"b", name="q").result(10)  # in a new segment, whose snapshot has the silence of "p"
    log.close()
    clock.now += 3_000  # the daemon is not running
    log = Log(tmp_path, settings, clock=clock, fs=UNSYNCED, transactions=limits)
    topic = log.topic("t")
    clock.advance(399)
    log.sweep()
    assert append(topic, 7, b"a").result(10).first == 0
    clock.advance(2)
    log.sweep()
    assert append(topic, 50, b"c").result(10).first == 2
    assert append(topic, 0, b"b", name="q").result(10).first == 1
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
def test_invalid_producer_is_an_error(name, sequence):
    with pytest.raises(ValueError, match=r"producer|sequence"):
        ProducerSequence(name, sequence)


def test_number_of_producers_is_bounded(monkeypatch):
    monkeypatch.setattr("penstock.log.store.producers.MAX_PRODUCERS", 50)
    producers = Producers(100)
    for number in range(51):
        producers.enter(f"p{number}", StoredAppend(0, number, 1, number, 0))
    assert producers.stored_append(ProducerSequence("p0", 9)) is None
    assert producers.stored_append(ProducerSequence("p1", 0)) == StoredAppend(0, 1, 1, 1, 0)


def test_older_answers_are_dropped_and_each_producer_retains_its_last(monkeypatch):
    monkeypatch.setattr("penstock.log.store.producers.MAX_ANSWERS", 100)
    producers = Producers(100)
    for number in range(12):
        for name in range(9):
            producers.enter(f"p{name}", StoredAppend(number, number, 1, number, 0))
    assert all(producers.stored_append(ProducerSequence(f"p{name}", 11)) for name in range(9))
    with pytest.raises(OutOfSequence, match="older"):
        producers.stored_append(ProducerSequence("p0", 0))
    assert sum(map(len, producers.document()["producers"].values())) <= 100


VALUES = st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=20)


@given(VALUES, VALUES, st.data())
def test_checksum_does_not_depend_on_the_memory_layout(keys, values, data):
    count = min(len(keys), len(values))
    maps = [[(str(n), str(value))] * (n % 3) if n % 4 else None for n, value in enumerate(values[:count])]
    complete = body(values[:count], keys=pa.array(keys[:count], pa.binary()), annotations=pa.array(maps, ANNOTATIONS))
    begin, end = sorted((data.draw(st.integers(0, count)), data.draw(st.integers(0, count))))
    part = complete.slice(begin, end - begin)
    copy = decode(encode(part, {}), BODY)[0]
    assert checksum(part) == checksum(copy) == checksum(part.take(pa.array(range(len(part)), pa.int64())))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=60))
def test_snapshot_restores_the_complete_state(appends):
    producers, numbers = Producers(100), dict.fromkeys("abc", 0)
    for time, (name, count) in enumerate(appends):
        producers.enter(name, StoredAppend(numbers[name], time, count, time, 7 * time))
        numbers[name] += 1
    loaded = Producers(100)
    loaded.load(producers.document())
    assert loaded.document() == producers.document()
    for name, following in numbers.items():
        for number in range(max(0, following - ANSWERS_PER_PRODUCER), following):
            assert (
                loaded.stored_append(ProducerSequence(name, number))
                == producers.stored_append(ProducerSequence(name, number))
                is not None
            )


def counted(topic, sequence, *values, epoch=0):
    number = (epoch << EPOCH_BITS) + sequence
    return topic.append(rows(*values), origin(), producer=ProducerSequence("k", number, by_rows=True))


def test_producer_that_counts_rows_continues_after_its_last_row(tmp_path):
    with opened(tmp_path) as topic:
        counted(topic, 0, b"a", b"b").result(10)
        counted(topic, 2, b"c").result(10)
        assert counted(topic, 0, b"a", b"b").result(10).first == 0
        for number in (1, 4, 7):
            with pytest.raises(OutOfSequence):
                counted(topic, number, b"x").result(10)
        counted(topic, 3, b"d", b"e").result(10)
        assert payloads(topic) == [b"a", b"b", b"c", b"d", b"e"]
    with opened(tmp_path) as topic:  # known after a restart
        assert counted(topic, 3, b"d", b"e").result(10).first == 3
        counted(topic, 5, b"f").result(10)


def test_later_epoch_starts_again_and_earlier_epoch_is_refused(tmp_path):
    with opened(tmp_path) as topic:
        counted(topic, 0, b"a", b"b").result(10)
        with pytest.raises(OutOfSequence, match="gap"):
            counted(topic, 5, b"x", epoch=1).result(10)
        counted(topic, 0, b"c", epoch=2).result(10)
        assert counted(topic, 0, b"a", b"b").result(10).first == 0, "what is stored is answered"
        with pytest.raises(OutOfSequence):
            counted(topic, 2, b"x").result(10)
        counted(topic, 1, b"d", epoch=2).result(10)
        assert payloads(topic) == [b"a", b"b", b"c", b"d"]


def test_waiting_appends_that_count_rows_are_contiguous(tmp_path):
    with opened(tmp_path) as topic, topic.writer.lock:
        waiting = [counted(topic, 0, b"a", b"b"), counted(topic, 2, b"c"), counted(topic, 2, b"c")]
        wrong = counted(topic, 4, b"x")
    assert [answer.result(10).first for answer in waiting] == [0, 2, 2]
    with pytest.raises(OutOfSequence, match="gap"):
        wrong.result(10)

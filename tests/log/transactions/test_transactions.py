"""Transactions: all or nothing over several topics, whatever happens."""

import threading
import time
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.file_system import MappedIntegers
from penstock.log import (
    InvalidTopicName,
    Limits,
    Log,
    LogError,
    LogFull,
    MessageTooLarge,
    OutOfSequence,
    ProducerSequence,
    TooManyTopics,
    TopicReader,
    TopicSettings,
    TransactionTimedOut,
    UnknownFormat,
    UnknownTopic,
    UnknownTransaction,
    WriteFailed,
)
from penstock.log.transactions.atomic_commit import SUFFIX, undo
from penstock.testing import CrashingFileSystem, FakeClock
from tests.fuzzed import documents
from tests.log.log_helpers import UNSYNCED, UnsyncedFiles, fill, offsets, origin, payloads, rows


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def log(tmp_path, clock):
    log = Log(tmp_path, TopicSettings(message_size_limit=1000), fs=UNSYNCED, clock=clock, max_topics=3)
    yield log
    log.close()


def staged(log):
    return sorted(path.name for path in log.directory.glob("TRANSACTION*"))


def put(log, transaction, topic, *values, producer=None):
    log.transactions.append(transaction, topic, rows(*values), origin(), producer)


def test_offsets_are_given_at_commit_and_nothing_is_seen_before(log):
    fill(log.topic("a", create=True), [b"0"])
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"1", b"2")
    put(log, transaction, "b", b"x")
    put(log, transaction, "a", b"3")
    assert (payloads(log.topic("a")), log.names()) == ([b"0"], ["a"])
    fill(log.topic("a"), [b"between"])
    done = log.transactions.commit(transaction)
    assert [(one.first, one.count, one.durability) for one in done["a"]] == [(2, 2, "synced"), (4, 1, "synced")]
    assert [one.first for one in done["b"]] == [0]
    assert payloads(log.topic("a")) == [b"0", b"between", b"1", b"2", b"3"]
    assert payloads(log.topic("b")) == [b"x"]
    assert staged(log) == []


def test_an_aborted_transaction_leaves_nothing(log):
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"1")
    assert len(staged(log)) == 1
    log.transactions.abort(transaction)
    assert (log.names(), staged(log)) == ([], [])
    for call in (log.transactions.commit, log.transactions.abort):
        with pytest.raises(UnknownTransaction):
            call(transaction)


def test_a_commit_that_was_not_heard_of_is_answered_again(log):
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"1")
    assert log.transactions.commit(transaction) == log.transactions.commit(transaction)
    assert payloads(log.topic("a")) == [b"1"]


def test_an_empty_transaction_can_be_committed(log):
    assert log.transactions.commit(log.transactions.begin()) == {}


def test_what_is_open_for_too_long_is_aborted(log, clock):
    late, early = log.transactions.begin(), log.transactions.begin(timeout=5)
    put(log, late, "a", b"1")
    put(log, early, "a", b"2")
    clock.advance(6)
    for _ in range(2):
        with pytest.raises(TransactionTimedOut):
            put(log, early, "a", b"3")
    clock.advance(55)
    log.sweep()
    assert staged(log) == []
    with pytest.raises(TransactionTimedOut):
        log.transactions.commit(late)
    assert log.names() == []


def test_a_caller_cannot_ask_for_more_time_than_is_configured(log, clock):
    transaction = log.transactions.begin(timeout=1e9)
    clock.advance(61)
    with pytest.raises(TransactionTimedOut):
        log.transactions.abort(transaction)


def test_what_a_topic_does_not_take_is_refused_at_once(log):
    transaction = log.transactions.begin()
    with pytest.raises(MessageTooLarge):
        put(log, transaction, "a", b"x" * 1001)
    for name in ("A", "_ledger"):
        with pytest.raises(InvalidTopicName):
            put(log, transaction, name, b"x")
    for name in ("a", "b", "c"):
        log.create(name)
    with pytest.raises(TooManyTopics):
        put(log, transaction, "d", b"x")
    with pytest.raises(ValueError, match="columns"):
        log.transactions.append(transaction, "a", pa.record_batch({"x": [1]}), origin())
    with pytest.raises(UnknownTransaction):
        put(log, "none", "a", b"x")
    assert log.transactions.commit(transaction) == {}


def test_size_and_number_are_bounded_by_name(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED, transactions=Limits(max_size=3000, max_open=2))
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"x" * 1500)
    with pytest.raises(MessageTooLarge, match=r"transactions\.max_size"):
        put(log, transaction, "a", b"x" * 1500)
    log.transactions.begin()
    with pytest.raises(LogFull, match=r"transactions\.max_open"):
        log.transactions.begin()
    log.transactions.commit(transaction)
    assert (payloads(log.topic("a")), bool(log.transactions.begin())) == ([b"x" * 1500], True)
    log.close()


def test_a_retried_append_is_staged_once_and_a_retried_transaction_stored_once(log):
    first = log.transactions.begin()
    for _ in range(2):
        put(log, first, "a", b"1", producer=ProducerSequence("p", 0))
    put(log, first, "a", b"2", producer=ProducerSequence("p", 1))
    done = log.transactions.commit(first)
    second = log.transactions.begin()
    put(log, second, "a", b"1", producer=ProducerSequence("p", 0))
    put(log, second, "a", b"2", producer=ProducerSequence("p", 1))
    again = log.transactions.commit(second)
    assert [one.first for one in done["a"]] == [one.first for one in again["a"]] == [0, 1]
    assert payloads(log.topic("a")) == [b"1", b"2"]


def test_a_number_that_leaves_a_gap_fails_the_commit_as_a_whole(log):
    log.topic("a", create=True).append(rows(b"0"), origin(), producer=ProducerSequence("p", 0)).result(10)
    transaction = log.transactions.begin()
    put(log, transaction, "b", b"x")
    put(log, transaction, "a", b"y", producer=ProducerSequence("p", 5))
    with pytest.raises(OutOfSequence):
        log.transactions.commit(transaction)
    assert (payloads(log.topic("a")), payloads(log.topic("b"))) == ([b"0"], [])
    log.transactions.abort(transaction)


def test_subscribers_hear_of_committed_rows(log):
    seen = []
    log.observe(lambda name, stored: seen.append((name, stored.base, stored.rows)))
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"1", b"2")
    put(log, transaction, "b", b"3")
    assert seen == []
    log.transactions.commit(transaction)
    assert sorted(seen) == [("a", 0, 2), ("b", 0, 1)]


def test_a_topic_that_is_deleted_before_the_commit_is_made_again(log):
    fill(log.topic("a", create=True), [b"old"])
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"new")
    log.delete("a")
    with pytest.raises(UnknownTopic):
        log.topic("a")
    assert log.transactions.commit(transaction)["a"][0].first == 1
    assert payloads(log.topic("a")) == [b"new"]


def test_what_was_open_is_gone_after_a_restart(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED)
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"1")
    left = (tmp_path / staged(log)[0]).read_bytes()
    log.close()
    (tmp_path / "TRANSACTION-x.staged").write_bytes(left)  # as a kill leaves it
    log = Log(tmp_path, fs=UNSYNCED)
    assert (staged(log), log.names()) == ([], [])
    with pytest.raises(UnknownTransaction):
        log.transactions.commit(transaction)
    log.close()


def test_on_a_full_disk_a_commit_fails_as_a_whole_and_can_be_tried_again(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    log = Log(tmp_path, fs=fs)
    for name in ("a", "b"):
        fill(log.topic(name, create=True), [b"0"])
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"1" * 500)
    put(log, transaction, "b", b"2" * 500)
    for free in (0, 100, 700, 1400, 1600, 2000):
        fs.free = free
        with suppress(LogFull):
            log.transactions.commit(transaction)
            break
        assert (payloads(log.topic("a")), payloads(log.topic("b"))) == ([b"0"], [b"0"])
    fs.free = None
    log.transactions.commit(transaction)
    for name, text in (("a", b"1"), ("b", b"2")):
        fill(log.topic(name), [b"3"])
        assert payloads(log.topic(name)) == [b"0", text * 500, b"3"]
    log.close()


@pytest.mark.parametrize("broken", ["sync", "truncate", "remove", "sync_directory", "rename", "write"])
def test_while_a_failed_commit_cannot_be_taken_back_its_topics_wait(tmp_path, broken):
    """Else what is appended later would be cut off with it after a crash."""
    fs = CrashingFileSystem(tmp_path)
    log = Log(tmp_path, fs=fs, committers=1)
    for name in ("a", "b", "c"):
        fill(log.topic(name, create=True), [b"0"])
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"1")
    put(log, transaction, "b", b"2")
    fs.failures = {broken: 5, "sync_directory": 5} if broken != "sync" else {"sync": 5}
    with pytest.raises(LogError):
        log.transactions.commit(transaction)
    assert [payloads(log.topic(name)) for name in "ab"] == [[b"0"], [b"0"]]
    fs.failures = {}
    for name in ("b", "a", "c"):
        fill(log.topic(name), [b"after"])
    log.close()
    fs.crash()
    log = Log(tmp_path, fs=fs)
    assert [payloads(log.topic(name)) for name in "abc"] == [[b"0", b"after"]] * 3
    assert [offsets(log.topic(name)) for name in "abc"] == [[0, 1]] * 3
    log.close()


def cut_while_committing(folder, seed, stop):
    """The rows of both topics after a power cut at the ``stop``-th step of a commit, and whether it was answered."""
    fs = CrashingFileSystem(folder, seed)
    log = Log(folder, fs=fs, committers=1)
    fill(log.topic("a", create=True), [b"0"])
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"1", b"2")
    put(log, transaction, "b", b"3")
    log.topic("b", create=True)
    fs.stop_after = stop
    answered = False
    with suppress(LogError, OSError):
        log.transactions.commit(transaction)
        answered = True
    log.close()
    fs.crash()
    log = Log(folder, fs=fs)
    found = payloads(log.topic("a")), payloads(log.topic("b"))
    assert staged(log) == []
    for name in "ab":
        fill(log.topic(name), [b"after"])
    log.close()
    fs.crash()
    log = Log(folder, fs=fs)
    assert (payloads(log.topic("a")), payloads(log.topic("b"))) == (found[0] + [b"after"], found[1] + [b"after"])
    log.close()
    return found, answered


def test_wherever_a_power_cut_comes_a_transaction_is_there_as_a_whole_or_not_at_all(tmp_path):
    outcomes = set()
    for stop in range(34):
        folder = tmp_path / str(stop)
        folder.mkdir()
        found, answered = cut_while_committing(folder, seed=stop, stop=stop)
        assert found in (([b"0"], []), ([b"0", b"1", b"2"], [b"3"]))
        assert found[1] or not answered
        outcomes.add((bool(found[1]), answered))
    assert outcomes == {(False, False), (True, False), (True, True)}


class SlowWords(MappedIntegers):
    def store(self, *values):
        time.sleep(0.002)
        super().store(*values)


class SlowFiles(UnsyncedFiles):
    """Takes its time to publish."""

    def words(self, path):
        return SlowWords(path) if path.suffix == ".synced" else MappedIntegers(path)


def test_readers_of_files_see_a_transaction_in_all_topics_or_in_none(tmp_path):
    log = Log(tmp_path, fs=SlowFiles())
    names = ["a", "b", "c"]
    for name in names:
        log.create(name)
    seen, stop = [], threading.Event()

    def watch(order):
        readers = {name: TopicReader(tmp_path / name) for name in order}
        while not stop.is_set():
            ends = [readers[name].end for name in order]
            seen.append(ends == sorted(ends))  # what the first one shows, the later ones show too

    threads = [threading.Thread(target=watch, args=(order,)) for order in (names, names[::-1])]
    for thread in threads:
        thread.start()
    for number in range(40):
        transaction = log.transactions.begin()
        for name in names:
            put(log, transaction, name, b"%d" % number)
        log.transactions.commit(transaction)
    stop.set()
    for thread in threads:
        thread.join()
    assert len(seen) > 10
    assert all(seen)
    log.close()


def test_many_commits_over_the_same_topics_at_once_all_come_through(log):
    def call(number):
        for turn in range(5):
            transaction = log.transactions.begin()
            for name in ("a", "b") if number % 2 else ("b", "a"):
                put(log, transaction, name, b"%d-%d" % (number, turn))
            log.transactions.commit(transaction)
            log.topic("a").append(rows(b"single"), origin()).result(10)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    a = [value for value in payloads(log.topic("a")) if value != b"single"]
    assert a == payloads(log.topic("b"))
    assert len(set(a)) == 40
    assert offsets(log.topic("a")) == list(range(80))


@given(documents("places"))
def test_any_bytes_of_an_intent_are_taken_back_or_put_aside(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("topics")
    intent = folder / f"TRANSACTION{SUFFIX}"
    intent.write_bytes(data)
    with suppress(UnknownFormat):
        undo(UNSYNCED, intent, folder)
        assert not intent.exists()


@given(st.data())
def test_what_is_staged_is_committed_as_it_was_or_not_at_all(tmp_path_factory, data):
    log = Log(tmp_path_factory.mktemp("log"), fs=UNSYNCED, clock=FakeClock())
    transaction = log.transactions.begin()
    put(log, transaction, "a", b"1", b"2")
    put(log, transaction, "a", b"3")
    (path,) = log.directory.glob("TRANSACTION*")
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with suppress(WriteFailed):
        log.transactions.commit(transaction)
    stored = payloads(log.topic("a")) if "a" in log.names() else []
    assert stored in ([], [b"1", b"2", b"3"])
    log.close()

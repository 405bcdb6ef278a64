"""Transactions: all or nothing over several topics, also after crashes."""

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product

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
    OutcomeInDoubt,
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
from penstock.log.documents import encode
from penstock.log.store import index
from penstock.log.store.segment_files import SegmentFiles
from penstock.log.transactions.atomic_commit import SUFFIX, undo_undecided
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


def transaction_files(log):
    return sorted(path.name for path in log.directory.glob("TRANSACTION*"))


def stage(log, transaction, topic, *values, producer=None):
    log.transactions.append(transaction, topic, rows(*values), origin(), producer)


def test_commit_assigns_offsets_and_publishes_rows(log):
    fill(log.topic("a", create=True), [b"0"])
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1", b"2")
    stage(log, transaction, "b", b"x")
    stage(log, transaction, "a", b"3")
    assert (payloads(log.topic("a")), log.names()) == ([b"0"], ["a"])
    fill(log.topic("a"), [b"between"])
    answers = log.transactions.commit(transaction)
    assert [(appended.first, appended.count, appended.durability) for appended in answers["a"]] == [
        (2, 2, "synced"),
        (4, 1, "synced"),
    ]
    assert [appended.first for appended in answers["b"]] == [0]
    assert payloads(log.topic("a")) == [b"0", b"between", b"1", b"2", b"3"]
    assert payloads(log.topic("b")) == [b"x"]
    assert transaction_files(log) == []


def test_abort_leaves_nothing(log):
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1")
    assert len(transaction_files(log)) == 1
    log.transactions.abort(transaction)
    assert (log.names(), transaction_files(log)) == ([], [])
    for call in (log.transactions.commit, log.transactions.abort):
        with pytest.raises(UnknownTransaction):
            call(transaction)


def test_repeated_commit_returns_the_same_answer(log):
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1")
    assert log.transactions.commit(transaction) == log.transactions.commit(transaction)
    assert payloads(log.topic("a")) == [b"1"]


class SlowDecision(UnsyncedFiles):
    """Files whose first removal of an intent, which decides a transaction, waits for ``go_on``."""

    def __init__(self):
        self.deciding, self.go_on = threading.Event(), threading.Event()

    def remove(self, path):
        if path.name.endswith(SUFFIX):
            self.deciding.set()
            assert self.go_on.wait(10)
        super().remove(path)


def test_commit_that_is_repeated_while_the_disk_is_slow_returns_the_same_answer(tmp_path):
    files = SlowDecision()
    log = Log(tmp_path, fs=files)
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1")
    with ThreadPoolExecutor(2) as callers:
        first = callers.submit(log.transactions.commit, transaction)
        assert files.deciding.wait(10)
        # As a client does whose call ran out of time.
        repeated = callers.submit(log.transactions.commit, transaction)
        with pytest.raises(TimeoutError):
            repeated.result(0.2)
        files.go_on.set()
        assert repeated.result(10) == first.result(10)
    assert payloads(log.topic("a")) == [b"1"]
    log.close()


def test_empty_transaction_is_committed(log):
    assert log.transactions.commit(log.transactions.begin()) == {}


def test_transaction_is_aborted_after_its_timeout(log, clock):
    late, early = log.transactions.begin(), log.transactions.begin(timeout=5)
    stage(log, late, "a", b"1")
    stage(log, early, "a", b"2")
    clock.advance(6)
    for _ in range(2):
        with pytest.raises(TransactionTimedOut):
            stage(log, early, "a", b"3")
    clock.advance(55)
    log.sweep()
    assert transaction_files(log) == []
    with pytest.raises(TransactionTimedOut):
        log.transactions.commit(late)
    assert log.names() == []


def test_timeout_is_limited_by_the_configuration(log, clock):
    transaction = log.transactions.begin(timeout=1e9)
    clock.advance(61)
    with pytest.raises(TransactionTimedOut):
        log.transactions.abort(transaction)


def test_append_that_the_topic_refuses_is_refused_before_the_commit(log):
    transaction = log.transactions.begin()
    with pytest.raises(MessageTooLarge):
        stage(log, transaction, "a", b"x" * 1001)
    for name in ("A", "_ledger"):
        with pytest.raises(InvalidTopicName):
            stage(log, transaction, name, b"x")
    for name in ("a", "b", "c"):
        log.create(name)
    with pytest.raises(TooManyTopics):
        stage(log, transaction, "d", b"x")
    with pytest.raises(ValueError, match="columns"):
        log.transactions.append(transaction, "a", pa.record_batch({"x": [1]}), origin())
    with pytest.raises(UnknownTransaction):
        stage(log, "none", "a", b"x")
    assert log.transactions.commit(transaction) == {}


def test_size_and_number_of_transactions_are_limited(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED, transactions=Limits(max_size=3000, max_open=2))
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"x" * 1500)
    with pytest.raises(MessageTooLarge, match=r"transactions\.max_size"):
        stage(log, transaction, "a", b"x" * 1500)
    log.transactions.begin()
    with pytest.raises(LogFull, match=r"transactions\.max_open"):
        log.transactions.begin()
    log.transactions.commit(transaction)
    assert (payloads(log.topic("a")), bool(log.transactions.begin())) == ([b"x" * 1500], True)
    log.close()


def test_retried_append_and_retried_transaction_are_stored_once(log):
    first = log.transactions.begin()
    for _ in range(2):
        stage(log, first, "a", b"1", producer=ProducerSequence("p", 0))
    stage(log, first, "a", b"2", producer=ProducerSequence("p", 1))
    first_answers = log.transactions.commit(first)
    second = log.transactions.begin()
    stage(log, second, "a", b"1", producer=ProducerSequence("p", 0))
    stage(log, second, "a", b"2", producer=ProducerSequence("p", 1))
    second_answers = log.transactions.commit(second)
    assert (
        [appended.first for appended in first_answers["a"]]
        == [appended.first for appended in second_answers["a"]]
        == [0, 1]
    )
    assert payloads(log.topic("a")) == [b"1", b"2"]


def test_sequence_number_after_a_hole_fails_the_whole_commit(log):
    log.topic("a", create=True).append(rows(b"0"), origin(), producer=ProducerSequence("p", 0)).result(10)
    transaction = log.transactions.begin()
    stage(log, transaction, "b", b"x")
    stage(log, transaction, "a", b"y", producer=ProducerSequence("p", 5))
    with pytest.raises(OutOfSequence):
        log.transactions.commit(transaction)
    assert (payloads(log.topic("a")), payloads(log.topic("b"))) == ([b"0"], [])
    log.transactions.abort(transaction)


def test_observers_receive_committed_rows(log):
    seen = []
    log.observe(lambda name, stored: seen.append((name, stored.base, stored.rows)))
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1", b"2")
    stage(log, transaction, "b", b"3")
    assert seen == []
    log.transactions.commit(transaction)
    assert sorted(seen) == [("a", 0, 2), ("b", 0, 1)]


def test_commit_creates_a_topic_that_was_deleted(log):
    fill(log.topic("a", create=True), [b"old"])
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"new")
    log.delete("a")
    with pytest.raises(UnknownTopic):
        log.topic("a")
    assert log.transactions.commit(transaction)["a"][0].first == 1
    assert payloads(log.topic("a")) == [b"new"]


@pytest.mark.survives("transactions", "SIGKILL")
def test_restart_drops_open_transactions(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED)
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1")
    staged_bytes = (tmp_path / transaction_files(log)[0]).read_bytes()
    log.close()
    (tmp_path / "TRANSACTION-x.staged").write_bytes(staged_bytes)  # the state after a kill
    log = Log(tmp_path, fs=UNSYNCED)
    assert (transaction_files(log), log.names()) == ([], [])
    with pytest.raises(UnknownTransaction):
        log.transactions.commit(transaction)
    log.close()


@pytest.mark.survives("transactions", "full disk")
def test_failed_commit_on_a_full_disk_can_be_retried(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    log = Log(tmp_path, fs=fs)
    for name in ("a", "b"):
        fill(log.topic(name, create=True), [b"0"])
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1" * 500)
    stage(log, transaction, "b", b"2" * 500)
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
def test_topics_wait_until_a_failed_commit_is_rolled_back(tmp_path, broken):
    """Else what is appended later would be cut off with it after a crash."""
    fs = CrashingFileSystem(tmp_path)
    log = Log(tmp_path, fs=fs, committers=1)
    for name in ("a", "b", "c"):
        fill(log.topic(name, create=True), [b"0"])
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1")
    stage(log, transaction, "b", b"2")
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


class FailingDecision(CrashingFileSystem):
    """Fails once the rows of a transaction are in all files: the intent cannot be removed, and no file be cut."""

    is_broken = True
    refused_truncations = 0

    def check(self, era, operation):
        if operation == "truncate" and self.refused_truncations:
            self.refused_truncations -= 1
            raise OSError(errno.EIO, "Input/output error")
        super().check(era, operation)

    def remove(self, path):
        if path.name.endswith(SUFFIX) and self.is_broken:
            self.failures = {"truncate": errno.EIO, "remove": errno.EIO}
        super().remove(path)


def fail_to_commit(folder, seed=0):
    """Return the files, and the log, of two topics with a row each behind which a commit has failed."""
    fs = FailingDecision(folder, seed)
    log = Log(folder, fs=fs, committers=1)
    for name in ("a", "b"):
        fill(log.topic(name, create=True), [b"0"])
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1")
    stage(log, transaction, "b", b"2")
    with pytest.raises(LogError):
        log.transactions.commit(transaction)
    fs.is_broken, fs.failures = False, {}
    return fs, log


@pytest.mark.parametrize("seed", range(4))  # the seed decides what of the unsynced bytes a power cut leaves
def test_failed_commit_is_rolled_back_in_all_topics_before_one_is_appended_to(tmp_path, seed):
    fs, log = fail_to_commit(tmp_path, seed)
    fill(log.topic("a"), [b"after"])
    fs.crash()
    log = Log(tmp_path, fs=fs)
    # Rows behind the synced length are recovered by the first append.
    fill(log.topic("b"), [b"after"])
    assert [payloads(log.topic(name)) for name in "ab"] == [[b"0", b"after"]] * 2
    log.close()


class DyingDisk(CrashingFileSystem):
    """Fails ``count`` operations from the removal of an intent on, which succeeds itself."""

    count = 0
    remaining = 0

    def remove(self, path):
        super().remove(path)
        if path.name.endswith(SUFFIX):
            self.remaining, self.count = self.count, 0

    def check(self, era, operation):
        super().check(era, operation)
        if self.remaining > 0 and operation != "store":  # of mapped memory
            self.remaining -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def lose_decision(fs, folder):
    """Commit to two topics on a disk that fails after the removal of the intent; return the log and the error."""
    log = Log(folder, fs=fs, committers=1)
    for name in ("a", "b"):
        fill(log.topic(name, create=True), [b"0"])
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1" * 1000)
    stage(log, transaction, "b", b"2" * 1000)
    with pytest.raises(WriteFailed) as failure:
        log.transactions.commit(transaction)
    assert [payloads(log.topic(name)) for name in "ab"] == [[b"0"], [b"0"]]
    return log, failure.type


@pytest.mark.survives("transactions", "failing disk")
@pytest.mark.parametrize("killed", [False, True])
def test_transaction_whose_decision_failed_is_all_or_nothing_after_a_crash(tmp_path, killed):
    outcomes = set()
    for count, seed in product((1, 2, 3, 5, 7, 9, 11, 1000), range(6)):
        folder = tmp_path / f"{count}-{seed}"
        folder.mkdir()
        fs = DyingDisk(folder, seed)
        fs.count = count
        log, error = lose_decision(fs, folder)
        fs.remaining, fs.stop_after = 0, 0
        log.close()
        fs.kill() if killed else fs.crash()
        log = Log(folder, fs=fs)
        stored = tuple(len(payloads(log.topic(name))) - 1 for name in "ab")
        outcomes.add((error, stored))
        log.close()
    assert outcomes <= {(WriteFailed, (0, 0)), (OutcomeInDoubt, (0, 0)), (OutcomeInDoubt, (1, 1))}
    assert {(WriteFailed, (0, 0)), (OutcomeInDoubt, (1, 1))} <= outcomes


def test_transaction_in_doubt_is_invisible_and_rolled_back_before_its_topics_are_used(tmp_path):
    fs = DyingDisk(tmp_path)
    fs.count = 1000
    log, error = lose_decision(fs, tmp_path)
    assert error is OutcomeInDoubt
    fs.remaining, fs.failures = 0, {"rename": errno.EIO}
    log.sweep()
    fs.failures = {}
    assert [payloads(log.topic(name)) for name in "ab"] == [[b"0"], [b"0"]]
    for name in "ba":
        fill(log.topic(name), [b"after"])
    log.close()
    fs.crash()
    log = Log(tmp_path, fs=fs)
    assert [payloads(log.topic(name)) for name in "ab"] == [[b"0", b"after"]] * 2
    log.close()


def cut_while_committing(folder, seed, stop):
    """The rows of both topics after a power cut at the ``stop``-th step of a commit, and whether it was answered."""
    fs = CrashingFileSystem(folder, seed)
    log = Log(folder, fs=fs, committers=1)
    fill(log.topic("a", create=True), [b"0"])
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1", b"2")
    stage(log, transaction, "b", b"3")
    log.topic("b", create=True)
    fs.stop_after = stop
    answered = False
    with suppress(LogError, OSError):
        log.transactions.commit(transaction)
        answered = True
    log.close()
    fs.crash()
    log = Log(folder, fs=fs)
    stored = payloads(log.topic("a")), payloads(log.topic("b"))
    assert transaction_files(log) == []
    for name in "ab":
        fill(log.topic(name), [b"after"])
    log.close()
    fs.crash()
    log = Log(folder, fs=fs)
    assert (payloads(log.topic("a")), payloads(log.topic("b"))) == (stored[0] + [b"after"], stored[1] + [b"after"])
    log.close()
    return stored, answered


@pytest.mark.survives("transactions", "power cut")
def test_transaction_is_whole_or_absent_after_any_power_cut(tmp_path):
    outcomes = set()
    for stop in range(34):
        folder = tmp_path / str(stop)
        folder.mkdir()
        stored, answered = cut_while_committing(folder, seed=stop, stop=stop)
        assert stored in (([b"0"], []), ([b"0", b"1", b"2"], [b"3"]))
        assert stored[1] or not answered
        outcomes.add((bool(stored[1]), answered))
    assert outcomes == {(False, False), (True, False), (True, True)}


@pytest.mark.survives("transactions", "power cut")
def test_transaction_is_absent_after_power_cuts_while_it_is_rolled_back(tmp_path):
    cuts = 0
    for stop, seed in product(range(16), range(3)):
        folder = tmp_path / f"{stop}-{seed}"
        folder.mkdir()
        fs, _ = fail_to_commit(folder, seed)
        fs.crash()
        fs.stop_after = stop
        with suppress(LogError, OSError):
            Log(folder, fs=fs).close()
        cuts += fs.stop_after < 0
        fs.crash()
        log = Log(folder, fs=fs)
        assert [payloads(log.topic(name)) for name in "ab"] == [[b"0"], [b"0"]], (stop, seed)
        log.close()
    assert cuts


class SlowWords(MappedIntegers):
    def store(self, *values):
        time.sleep(0.002)
        super().store(*values)


class SlowFiles(UnsyncedFiles):
    """Takes its time to publish."""

    def words(self, path):
        return SlowWords(path) if path.suffix == ".synced" else MappedIntegers(path)


def test_file_readers_see_a_transaction_in_all_topics_or_in_none(tmp_path):
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
            stage(log, transaction, name, b"%d" % number)
        log.transactions.commit(transaction)
    stop.set()
    for thread in threads:
        thread.join()
    assert len(seen) > 10
    assert all(seen)
    log.close()


def test_concurrent_commits_over_the_same_topics_succeed(log):
    def call(number):
        for turn in range(5):
            transaction = log.transactions.begin()
            for name in ("a", "b") if number % 2 else ("b", "a"):
                stage(log, transaction, name, b"%d-%d" % (number, turn))
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


def test_intent_remains_until_the_rows_are_cut_in_all_topics(tmp_path):
    """Power cuts at each step of a rollback."""
    length = index.HEADER_SIZE + 2 * index.RECORD.itemsize
    finished = set()
    for stop, seed in product(range(16), range(6)):
        folder = tmp_path / f"{stop}-{seed}"
        files = [SegmentFiles(folder / name, 0) for name in "ab"]
        for topic in files:
            topic.directory.mkdir(parents=True)
            topic.data.write_bytes(b"x" * 100)
            topic.index.write_bytes(b"x" * length)
        intent = folder / f"TRANSACTION{SUFFIX}"
        intent.write_bytes(encode({"places": {"a": [0, 40, 1], "b": [0, 60, 0]}}))
        fs = CrashingFileSystem(folder, seed)
        fs.stop_after = stop
        with suppress(OSError):
            undo_undecided(fs, intent, folder)
        fs.crash()
        finished.add(not intent.exists())
        if not intent.exists():
            assert [topic.data.stat().st_size for topic in files] == [40, 60]
            assert [topic.index.stat().st_size for topic in files] == [
                length - index.RECORD.itemsize,
                index.HEADER_SIZE,
            ]
    assert finished == {False, True}


@given(documents("places"))
def test_intent_of_random_bytes_is_rolled_back_or_renamed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("topics")
    intent = folder / f"TRANSACTION{SUFFIX}"
    intent.write_bytes(data)
    with suppress(UnknownFormat):
        undo_undecided(UNSYNCED, intent, folder)
        assert not intent.exists()


@pytest.mark.survives("transactions", "damaged bytes")
@given(st.data())
def test_damaged_staged_rows_are_committed_unchanged_or_not_at_all(tmp_path_factory, data):
    log = Log(tmp_path_factory.mktemp("log"), fs=UNSYNCED, clock=FakeClock())
    transaction = log.transactions.begin()
    stage(log, transaction, "a", b"1", b"2")
    stage(log, transaction, "a", b"3")
    (path,) = log.directory.glob("TRANSACTION*")
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with suppress(WriteFailed):
        log.transactions.commit(transaction)
    stored = payloads(log.topic("a")) if "a" in log.names() else []
    assert stored in ([], [b"1", b"2", b"3"])
    log.close()


@pytest.mark.parametrize("deleted", ["a", "b"])
def test_topic_of_a_failed_commit_is_deleted_only_once_the_commit_is_rolled_back(tmp_path, deleted):
    fs, log = fail_to_commit(tmp_path)
    fs.refused_truncations = 1
    with pytest.raises(WriteFailed):
        log.delete(deleted)
    assert payloads(log.topic(deleted)) == [b"0"]
    log.delete(deleted)
    fill(log.topic(deleted, create=True), [b"new"])
    other = "ab".replace(deleted, "")
    fill(log.topic(other), [b"after"])
    log.close()
    fs.crash()
    log = Log(tmp_path, fs=fs)
    assert payloads(log.topic(other)) == [b"0", b"after"]
    assert payloads(log.topic(deleted)) == [b"new"]
    log.close()

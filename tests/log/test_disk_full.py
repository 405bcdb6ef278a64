"""A real full disk: a small file system, if it can be mounted."""

import contextlib
import threading

import pytest

from penstock.log import Log, LogFull, TopicReader, TopicSettings
from penstock.log.resources import RESERVE_BYTES
from penstock.testing import CrashingFileSystem
from tests.log.log_helpers import fill, offsets, origin, payloads, rows
from tests.small_disk import small_file_system


@pytest.fixture
def small_disk(tmp_path):
    with small_file_system(tmp_path / "disk", "3m") as folder:
        yield folder


def append_until_full(topic, number):
    """Return the payloads that were acknowledged."""
    stored = []
    while True:
        payload = b"%d-%d" % (number, len(stored)) * 4000
        try:
            topic.append(rows(payload), origin()).result(10)
        except LogFull:
            return stored
        stored.append(payload)


def take_the_rest(path):
    with open(path, "ab", buffering=0) as rest, contextlib.suppress(OSError):
        while rest.write(bytes(4096)):
            pass


@pytest.mark.survives("log", "full disk")
def test_appends_fail_on_a_full_disk_and_work_again_without_a_restart(small_disk):
    log = Log(small_disk / "topics", TopicSettings(segment_size_limit=500_000))
    topic = log.topic("t", create=True)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    stored, threads = [], []
    for number in range(4):
        threads.append(threading.Thread(target=lambda n=number: stored.extend(append_until_full(topic, n))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert sorted(payloads(topic)) == sorted(stored) == sorted(payloads(TopicReader(topic.path)))
    for refused in (
        lambda: topic.append(rows(b"x" * 20_000), origin()).result(10),
        lambda: topic.cursors.commit("c", 1),
        lambda: log.configure("t", {"stale_after": 1}),
        lambda: log.transactions.append(log.transactions.begin(), "t", rows(b"x" * 20_000), origin()),
    ):
        take_the_rest(small_disk / "rest")
        with pytest.raises(LogFull):
            refused()
    assert len(payloads(topic)) == len(stored)
    ballast.unlink()
    (small_disk / "rest").unlink()
    fill(topic, [b"after" * 5000])
    topic.cursors.commit("c", 1)
    assert offsets(topic) == list(range(len(stored) + 1))
    log.close()
    log = Log(small_disk / "topics")
    assert (offsets(log.topic("t")), log.topic("t").gaps()) == (list(range(len(stored) + 1)), [])
    log.close()


@pytest.mark.survives("log", "full disk")
def test_log_opens_on_a_full_disk_and_retention_frees_space(small_disk):
    log = Log(small_disk / "topics", TopicSettings(segment_size_limit=300_000))
    append_until_full(log.topic("t", create=True), 0)
    log.close()
    log = Log(small_disk / "topics", TopicSettings(segment_size_limit=300_000, retain_bytes=700_000))
    topic = log.topic("t")
    before = len(payloads(topic))
    assert before > 10
    log.sweep()
    assert 0 < len(payloads(topic)) < before
    fill(topic, [b"after" * 5000])
    log.close()


def full_log(folder, fs):
    """Return a log on a full disk with a topic of many segments."""
    log = Log(folder, TopicSettings(segment_size_limit=20_000), fs=fs)
    fill(log.topic("t", create=True), *([b"%d" % number * 3000] for number in range(60)))
    log.close()
    log = Log(folder, TopicSettings(segment_size_limit=20_000), fs=fs)
    fs.free = 0
    with pytest.raises(LogFull):
        fill(log.topic("t"), [b"x" * 3000])
    return log


@pytest.mark.parametrize("operation", ["configure", "delete", "cleanup"])
def test_reserve_is_released_for_operations_that_free_space(tmp_path, operation):
    fs = CrashingFileSystem(tmp_path)
    log = full_log(tmp_path, fs)
    if operation == "configure":
        log.configure("t", {"retain_bytes": 100_000})
        assert 0 < log.topic("t").start < 60
    elif operation == "delete":
        log.delete("t")
        assert log.names() == []
    else:
        log.topic("t").writer.settings = TopicSettings(retain_bytes=100_000)
        assert log.sweep()
    fill(log.topic("t", create=True), [b"new" * 1000])
    fs.free = None
    log.sweep()
    assert (tmp_path / "RESERVE").stat().st_size == RESERVE_BYTES
    log.close()


def test_appends_do_not_use_the_released_reserve(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    log = full_log(tmp_path, fs)
    refused = []

    def make_room():
        if not refused:
            refused.append("full")
            raise LogFull("the first time")
        with pytest.raises(LogFull, match="rows are being dropped"):
            fill(log.topic("t"), [b"greedy"])
        return "made"

    assert log._shared.reserve.for_making_room(make_room) == "made"
    fs.free = None
    fill(log.topic("t"), [b"after"])
    log.close()

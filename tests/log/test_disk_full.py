"""A disk that is really full: a small one of its own, where this may be mounted."""

import contextlib
import subprocess
import threading

import pytest

from penstock.log import Log, LogFull, TopicReader, TopicSettings
from tests.log.log_helpers import fill, offsets, origin, payloads, rows


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", path], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a disk of its own cannot be mounted here; test_log_topic has the same on a file system of ours")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def append_until_full(topic, number):
    """The payloads that were acknowledged."""
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


def test_appends_fail_while_it_is_full_reads_go_on_and_appends_work_again_without_a_restart(small_disk):
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


def test_on_a_full_disk_the_log_opens_and_retention_makes_room(small_disk):
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

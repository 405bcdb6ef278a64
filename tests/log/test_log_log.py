"""All topics of a directory."""

import threading

import pytest
from log_helpers import UNSYNCED, fill, origin, payloads, rows

from penstock.log import (
    InvalidTopicName,
    Log,
    LogClosed,
    LogFull,
    LogLocked,
    TooManyTopics,
    TopicSettings,
    UnknownTopic,
)
from penstock.testing import CrashingFileSystem


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path / "topics", TopicSettings(), fs=UNSYNCED, max_topics=3)
    yield log
    log.close()


def test_a_topic_is_made_on_demand_only(log):
    with pytest.raises(UnknownTopic):
        log.topic("events")
    topic = log.topic("events", create=True)
    assert log.topic("events") is topic
    assert (topic.name, topic.start, topic.end, log.names()) == ("events", 0, 0, ["events"])


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "A", "LOCK", "a b", "ä", "x" * 201, "a\n", "_ledger"])
def test_bad_names_are_refused(log, name):
    with pytest.raises(InvalidTopicName):
        log.topic(name, create=True)
    assert log.names(internal=True) == []


def test_internal_topics_are_hidden_and_do_not_count(log):
    for name in ("a", "b", "c"):
        log.topic(name, create=True)
    with pytest.raises(TooManyTopics):
        log.topic("d", create=True)
    log.topic("_ledger", create=True, internal=True)
    assert log.names() == ["a", "b", "c"]
    assert log.names(internal=True) == ["_ledger", "a", "b", "c"]
    with pytest.raises(InvalidTopicName):
        log.topic("_ledger")


def test_each_topic_has_its_own_settings(tmp_path):
    log = Log(tmp_path, TopicSettings(), overrides={"big": TopicSettings(segment_size_limit=9)}, fs=UNSYNCED)
    assert log.topic("big", create=True).settings.segment_size_limit == log.settings("big").segment_size_limit == 9
    assert log.topic("small", create=True).settings == TopicSettings()
    log.close()


def test_observers_see_the_batches_of_all_topics_old_and_new(log):
    seen = []
    old = log.topic("old", create=True)
    log.observe(lambda name, stored: seen.append((name, stored.rows)))
    fill(old, [b"a"])
    fill(log.topic("new", create=True), [b"a", b"b"])
    for name in ("old", "new"):
        log.topic(name).settle()
    assert sorted(seen) == [("new", 2), ("old", 1)]


def test_a_log_is_open_for_writing_once(log):
    with pytest.raises(LogLocked):
        Log(log.directory)


def test_what_was_appended_is_stored_before_the_log_closes(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED)
    done = [log.topic(f"t{n % 5}", create=True).append(rows(b"x"), origin()) for n in range(200)]
    topic = log.topic("t0")
    log.close()
    log.close()
    assert sum(one.result(0).count for one in done) == 200
    with pytest.raises(LogClosed):
        log.topic("t1", create=True) and log.topic("t9", create=True)
    with pytest.raises(LogClosed):
        topic.append(rows(b"x"), origin()).result(0)


def test_many_threads_may_ask_for_a_topic_at_once(log):
    found = []
    threads = [threading.Thread(target=lambda: found.append(log.topic("t", create=True))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


def test_a_topic_that_was_made_on_a_full_disk_works_when_there_is_space(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    log = Log(tmp_path, fs=fs)
    fs.free = 0
    topic = log.topic("t", create=True)
    assert (topic.start, topic.end) == (0, 0)
    with pytest.raises(LogFull):
        topic.append(rows(b"x"), origin()).result(10)
    fs.free = None
    fill(topic, [b"x"])
    assert payloads(topic) == [b"x"]
    log.close()

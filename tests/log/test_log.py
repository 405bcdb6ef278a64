"""All topics of a directory."""

import threading

import pytest

from penstock import records
from penstock.log import (
    Gap,
    InvalidSetting,
    InvalidTopicName,
    Limits,
    Log,
    LogClosed,
    LogFull,
    LogLocked,
    MessageTooLarge,
    TooManyTopics,
    TopicExists,
    TopicReader,
    TopicSettings,
    UnknownFormat,
    UnknownTopic,
)
from penstock.log.store import (
    batch_format,
)
from penstock.testing import CrashingFileSystem
from tests.log.log_helpers import BUCKET, UNSYNCED, fill, last_files, offsets, origin, payloads, rows


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path / "topics", TopicSettings(), fs=UNSYNCED, max_topics=3)
    yield log
    log.close()


def test_topic_is_created_only_on_request(log):
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


def test_internal_topics_are_hidden_and_not_limited(log):
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


def test_observers_see_batches_of_existing_and_new_topics(log):
    seen = []
    old = log.topic("old", create=True)
    log.observe(lambda name, stored: seen.append((name, stored.rows)))
    fill(old, [b"a"])
    fill(log.topic("new", create=True), [b"a", b"b"])
    for name in ("old", "new"):
        log.topic(name).wait_until_idle()
    assert sorted(seen) == [("new", 2), ("old", 1)]


def test_log_can_be_opened_for_writing_only_once(log):
    with pytest.raises(LogLocked):
        Log(log.directory)


def test_appends_are_stored_before_the_log_closes(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED)
    answers = [log.topic(f"t{n % 5}", create=True).append(rows(b"x"), origin()) for n in range(200)]
    topic = log.topic("t0")
    log.close()
    log.close()
    assert sum(answer.result(0).count for answer in answers) == 200
    with pytest.raises(LogClosed):
        log.topic("t1", create=True) and log.topic("t9", create=True)
    with pytest.raises(LogClosed):
        topic.append(rows(b"x"), origin()).result(0)


def test_many_threads_get_the_same_topic(log):
    opened_topics = []
    threads = [threading.Thread(target=lambda: opened_topics.append(log.topic("t", create=True))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, opened_topics))) == 1


def test_topic_created_on_a_full_disk_works_once_there_is_space(tmp_path):
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


def test_topic_is_created_with_persistent_settings(tmp_path):
    log = Log(tmp_path, TopicSettings(stale_after=5), fs=UNSYNCED)
    topic = log.create("t", {"segment_size_limit": 9, "readers": ["a"]})
    assert topic.settings == TopicSettings(stale_after=5, segment_size_limit=9, readers=("a",))
    with pytest.raises(TopicExists):
        log.create("t")
    with pytest.raises(InvalidSetting, match="stale_afer"):
        log.create("u", {"stale_afer": 1})
    with pytest.raises(InvalidTopicName):
        log.create("_t")
    assert log.names() == ["t"]
    log.close()
    log = Log(tmp_path, TopicSettings(stale_after=6), overrides={"t": TopicSettings(readers=("b",))}, fs=UNSYNCED)
    assert log.topic("t").settings == TopicSettings(segment_size_limit=9, readers=("a",))
    log.close()


def test_settings_apply_to_a_topic_that_is_not_open(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED)
    log.create("closed", {"readers": ["me"]})
    log.create("unreadable", {"readers": ["me"]})
    log.close()
    for copy in (tmp_path / "unreadable").glob("settings*"):
        copy.write_bytes(b"damaged")
    reopened = Log(tmp_path, TopicSettings(stale_after=5.0), fs=UNSYNCED)
    assert (reopened.settings("closed").readers, reopened.settings("closed").stale_after) == (("me",), 5.0)
    with pytest.raises(UnknownFormat):
        reopened.topic("unreadable")
    reopened.delete("closed")
    assert reopened.settings("closed").readers == ("*",)
    reopened.close()


def test_bytes_are_limited_once_a_limit_is_set(log):
    fill(log.topic("t", create=True), [b"x" * 1000])
    log.reconfigure(TopicSettings(), {}, 3, 2000, Limits())
    with pytest.raises(LogFull, match=r"log\.max_bytes"):
        fill(log.topic("t"), [b"x" * 1000])


def test_preallocated_space_does_not_count_towards_the_limit(log):
    log.reconfigure(TopicSettings(), {}, 3, 1 << 20, Limits())
    topic = log.topic("t", create=True)
    fill(topic, *([b"x" * 1000] for _ in range(50)))
    counted = log._shared.budget.used
    assert topic.writer.room > 1000
    log._measure_usage()
    assert abs(log._shared.budget.used - counted) < 1000


@pytest.mark.survives("log", "changed configuration")
def test_settings_change_during_appends(log):
    topic = log.create("t")
    fill(topic, [b"x" * 2000])
    log.configure("t", {"message_size_limit": 1000})
    assert log.settings("t").message_size_limit == topic.settings.message_size_limit == 1000
    with pytest.raises(MessageTooLarge):
        topic.append(rows(b"x" * 2000), origin()).result(10)
    log.configure("t", {"segment_size_limit": 1})
    fill(topic, [b"a"], [b"b"])
    assert len(list(topic.path.glob("*.arrows"))) == 3
    with pytest.raises(InvalidSetting, match="durability"):
        log.configure("t", {"durability": "safe", "segment_size_limit": 7})
    assert topic.settings.segment_size_limit == 1
    with pytest.raises(UnknownTopic):
        log.configure("none", {})


def test_settings_that_cannot_be_stored_do_not_apply(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    log = Log(tmp_path, fs=fs)
    log.create("t")
    fs.free = 0
    with pytest.raises(LogFull):
        log.configure("t", {"stale_after": 1})
    assert log.settings("t") == TopicSettings()
    log.close()


def test_deleted_topic_is_a_gap_with_its_counts_and_its_offsets_are_not_reused(log):
    topic = log.create("t", {"stale_after": 5})
    topic.append(rows(b"a", b"b"), origin(counts={"accepted": 2, "taken": 3})).result(10)
    topic.cursors.commit("c", 1)
    log.delete("t")
    assert (log.names(), log.settings("t")) == ([], TopicSettings())
    gap = Gap(0, 2, "deleted", {"events": {BUCKET: 2}}, {"events": {BUCKET: {"accepted": 2, "taken": 3}}})
    assert TopicReader(topic.path).gaps() == [gap]
    assert (TopicReader(topic.path).end, payloads(TopicReader(topic.path))) == (2, [])
    with pytest.raises(UnknownTopic):
        topic.append(rows(b"x"), origin()).result(10)
    for call in (log.topic, log.delete):
        with pytest.raises(UnknownTopic):
            call("t")
    recreated = log.topic("t", create=True)
    fill(recreated, [b"c"])
    assert (offsets(recreated), recreated.gaps(), recreated.cursors.offsets()) == ([2], [gap], {})
    assert recreated.settings == TopicSettings()


def test_deleted_topic_is_absent_after_a_restart_and_can_be_created_again(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED, max_topics=1)
    fill(log.create("t"), [b"a"])
    log.delete("t")
    log.close()
    (tmp_path / "t" / f"{0:020}.arrows").write_bytes(b"as a crash leaves it")
    log = Log(tmp_path, fs=UNSYNCED, max_topics=1)
    assert log.names() == []
    assert sorted(p.name for p in (tmp_path / "t").iterdir()) == ["DELETED", "gaps.copy.jsonl", "gaps.jsonl"]
    assert log.create("t").end == 1
    log.close()


def test_topic_created_again_has_no_rows_or_settings_that_its_deletion_could_not_remove(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    log = Log(tmp_path, fs=fs)
    fill(log.create("t", {"stale_after": 4.5}), [b"a"])
    fs.failures["remove"] = 5
    log.delete("t")
    fs.failures.clear()
    topic = log.create("t")
    assert topic.settings == TopicSettings()
    assert sorted(path.name for path in topic.path.glob("*.arrows")) == [f"{1:020}.arrows"]
    fill(topic, [b"b"])
    assert (payloads(topic), offsets(topic)) == ([b"b"], [1])
    log.close()


def test_closed_log_leaves_no_committer_thread(tmp_path):
    threads_before = {*threading.enumerate()}
    log = Log(tmp_path, fs=UNSYNCED, committers=2)
    assert len({*threading.enumerate()} - threads_before) == 2
    fill(log.create("t"), [b"a"])
    log.close()
    assert {*threading.enumerate()} <= threads_before


def test_appends_that_wait_during_a_deletion_are_deleted_or_refused(log):
    topic = log.create("t")
    answers = [topic.append(rows(b"%d" % n), origin()) for n in range(50)]
    log.delete("t")
    assert [answer.result(10).first for answer in answers] == list(range(50))
    assert TopicReader(topic.path).gaps()[-1].end == 50


@pytest.mark.survives("log", "other format")
def test_topic_of_another_format_is_refused_and_other_topics_open(tmp_path, caplog):
    log = Log(tmp_path, fs=UNSYNCED)
    for name in ("new", "old"):
        fill(log.topic(name, create=True), [b"a"])
    log.close()
    files = last_files(tmp_path / "new")
    batch, document = records.decode(files.data.read_bytes()[batch_format.PREAMBLE.size :])
    parts, _ = batch_format.frame(batch, {**document, "v": 2})
    files.data.write_bytes(bytes(memoryview(batch_format.PREAMBLE)) + b"".join(map(bytes, parts)))
    before = {path: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    log = Log(tmp_path, fs=UNSYNCED)
    with pytest.raises(UnknownFormat, match=r"topic 'new' is not opened: a batch has format version 2, .* reads 1"):
        log.topic("new")
    assert payloads(log.topic("old")) == [b"a"]
    log.sweep()
    log.sweep()
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["topic 'new' is not opened"]
    log.close()
    assert {path: path.read_bytes() for path in (tmp_path / "new").iterdir()} == before


def test_log_that_cannot_be_opened_releases_its_lock(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    (tmp_path / "TRANSACTION-x.staged").write_bytes(b"x")
    fs.failures["remove"] = 5
    with pytest.raises(OSError, match="Input/output"):
        Log(tmp_path, fs=fs)
    fs.failures.clear()
    Log(tmp_path, fs=fs).close()

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


def test_a_topic_is_created_with_settings_of_its_own_which_stay(tmp_path):
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


def test_settings_of_its_own_hold_for_a_topic_that_nobody_has_opened_yet(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED)
    log.create("closed", {"readers": ["me"]})
    log.create("unreadable", {"readers": ["me"]})
    log.close()
    for copy in (tmp_path / "unreadable").glob("settings*"):
        copy.write_bytes(b"damaged")
    again = Log(tmp_path, TopicSettings(stale_after=5.0), fs=UNSYNCED)
    assert (again.settings("closed").readers, again.settings("closed").stale_after) == (("me",), 5.0)
    with pytest.raises(UnknownFormat):
        again.topic("unreadable")
    again.delete("closed")
    assert again.settings("closed").readers == ("*",)
    again.close()


def test_bytes_are_limited_from_when_a_limit_is_set(log):
    fill(log.topic("t", create=True), [b"x" * 1000])
    log.reconfigure(TopicSettings(), {}, 3, 2000, Limits())
    with pytest.raises(LogFull, match=r"log\.max_bytes"):
        fill(log.topic("t"), [b"x" * 1000])


def test_a_segments_room_is_not_among_the_bytes_that_are_limited(log):
    log.reconfigure(TopicSettings(), {}, 3, 1 << 20, Limits())
    topic = log.topic("t", create=True)
    fill(topic, *([b"x" * 1000] for _ in range(50)))
    counted = log._shared.budget.used
    assert topic.writer.room > 1000
    log._measure_usage()
    assert abs(log._shared.budget.used - counted) < 1000


def test_settings_change_while_appends_go_on(log):
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


def test_settings_that_cannot_be_kept_are_not_in_force(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    log = Log(tmp_path, fs=fs)
    log.create("t")
    fs.free = 0
    with pytest.raises(LogFull):
        log.configure("t", {"stale_after": 1})
    assert log.settings("t") == TopicSettings()
    log.close()


def test_a_deleted_topic_is_a_gap_with_its_counts_and_its_offsets_are_not_given_again(log):
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
    again = log.topic("t", create=True)
    fill(again, [b"c"])
    assert (offsets(again), again.gaps(), again.cursors.all()) == ([2], [gap], {})
    assert again.settings == TopicSettings()


def test_a_deleted_topic_is_gone_after_a_restart_and_can_be_made_again(tmp_path):
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


def test_appends_that_wait_when_their_topic_is_deleted_are_stored_and_gone_or_refused(log):
    topic = log.create("t")
    done = [topic.append(rows(b"%d" % n), origin()) for n in range(50)]
    log.delete("t")
    assert [one.result(10).first for one in done] == list(range(50))
    assert TopicReader(topic.path).gaps()[-1].end == 50


def test_a_topic_of_another_format_is_refused_and_told_and_the_others_open(tmp_path, caplog):
    log = Log(tmp_path, fs=UNSYNCED)
    for name in ("new", "old"):
        fill(log.topic(name, create=True), [b"a"])
    log.close()
    files = last_files(tmp_path / "new")
    batch, document = records.decode(files.data.read_bytes()[batch_format.PREAMBLE.size :])
    framed = batch_format.frame(batch, {**document, "v": 2})
    files.data.write_bytes(bytes(memoryview(batch_format.PREAMBLE)) + b"".join(map(bytes, framed.parts)))
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


def test_a_log_that_cannot_be_opened_lets_go_of_its_lock(tmp_path):
    fs = CrashingFileSystem(tmp_path)
    (tmp_path / "TRANSACTION-x.staged").write_bytes(b"x")
    fs.failures["remove"] = 5
    with pytest.raises(OSError, match="Input/output"):
        Log(tmp_path, fs=fs)
    fs.failures.clear()
    Log(tmp_path, fs=fs).close()

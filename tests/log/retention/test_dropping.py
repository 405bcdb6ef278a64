"""Retention: when segments are dropped, and which gaps record them."""

import pytest

from penstock.counts import prefix_with_bucket
from penstock.log import Gap, Log, LogFull, TopicReader, TopicSettings
from penstock.log.resources import RESERVE_BYTES
from penstock.log.retention.sweeper import SWEEP_INTERVAL_S
from penstock.testing import CrashingFileSystem, FakeClock
from tests.log.log_helpers import BUCKET, UNSYNCED, fill, flip, offsets, origin, payloads, rows

HOUR = 3600.0


class AgingLog:
    """A log on a fake clock."""

    def __init__(self, folder, fs=UNSYNCED, **settings):
        self.clock = FakeClock()
        self.log = Log(folder, TopicSettings(**settings), clock=self.clock, fs=fs, committers=1)
        self.topic = self.log.topic("t", create=True)


@pytest.fixture
def make_log(tmp_path):
    logs = []

    def make(fs=UNSYNCED, **settings):
        logs.append(AgingLog(tmp_path, fs, **settings))
        return logs[-1]

    yield make
    for aging in logs:
        aging.log.close()


def gaps(topic):
    return [(gap.begin, gap.end, gap.reason) for gap in topic.gaps()]


@pytest.mark.parametrize("rate", [300, 3 * HOUR, 20 * HOUR])
def test_entry_age_is_between_retention_and_retention_plus_roll_plus_sweep(make_log, rate):
    """slogd's README, Message retention: with 7 days and 6 hours, at worst 7 days, 6 hours, and 5 minutes old."""
    retention, roll = 28 * HOUR, HOUR  # the same rule in an hour's steps
    aging = make_log(stale_after=retention, rotate_after=roll)
    born, dropped, passed = {}, {}, 0.0
    while passed < retention + 5 * HOUR:
        if passed % rate == 0:
            born[aging.topic.append(rows(b"x"), origin()).result(10).first] = aging.clock.now
        aging.clock.advance(SWEEP_INTERVAL_S)
        passed += SWEEP_INTERVAL_S
        if passed > retention - HOUR or passed % HOUR == 0:
            aging.log.sweep()
            start = aging.topic.start
            dropped |= {offset: aging.clock.now for offset in born if offset < start and offset not in dropped}
    ages = [dropped[offset] - born[offset] for offset in dropped]
    assert min(ages) >= retention
    assert max(ages) <= retention + roll + SWEEP_INTERVAL_S


def test_segment_is_rolled_by_age_without_further_appends(make_log):
    aging = make_log(rotate_after=100, stale_after=1000)
    fill(aging.topic, [b"a"])
    aging.clock.advance(99)
    aging.log.sweep()
    assert len(list(aging.topic.path.glob("*.arrows"))) == 1
    aging.clock.advance(1)
    aging.log.sweep()
    aging.log.sweep()
    assert len(list(aging.topic.path.glob("*.arrows"))) == 2


def test_read_and_unread_rows_become_separate_gaps(make_log):
    aging = make_log(stale_after=10)
    counts = {"accepted": 4, "taken": 9, **prefix_with_bucket(BUCKET - 60, {"taken": 2})}
    aging.topic.append(rows(*[b"x"] * 4), origin(counts=counts)).result(10)
    aging.topic.append(rows(*[b"y"] * 4), origin("other", counts={"accepted": 4})).result(10)
    aging.topic.cursors.commit("pipeline", 6)
    aging.topic.cursors.commit("ahead", 8)
    aging.clock.advance(11)
    swept = aging.log.sweep()
    assert [(s.topic, s.begin, s.end, s.reason) for s in swept] == [
        ("t", 0, 6, "expired_read"),
        ("t", 6, 8, "expired_unread"),
    ]
    assert all(s.bytes > 100 for s in swept)
    received = {
        "events": {BUCKET: {"accepted": 4, "taken": 9}, BUCKET - 60: {"taken": 2}},
        "other": {BUCKET: {"accepted": 4}},
    }
    assert aging.topic.gaps() == [
        Gap(0, 6, "expired_read", {"events": {BUCKET: 4}, "other": {BUCKET: 2}}, received),
        Gap(6, 8, "expired_unread", {"other": {BUCKET: 2}}, {}),
    ]
    assert TopicReader(aging.topic.path).gaps() == aging.topic.gaps()
    fill(aging.topic, [b"new"])
    assert offsets(aging.topic) == [8]


def test_gaps_are_divided_at_each_cursor(make_log):
    aging = make_log(stale_after=10)
    for source in "abab":
        aging.topic.append(rows(b"x"), origin(source)).result(10)
    for reader, offset in (("first", 0), ("second", 2), ("third", 3), ("last", 4)):
        aging.topic.cursors.commit(reader, offset)
    aging.clock.advance(11)
    assert [(s.begin, s.end) for s in aging.log.sweep()] == [(0, 4)]
    assert [
        (gap.begin, gap.end, {s: sum(n.values()) for s, n in gap.counts.items()}) for gap in aging.topic.gaps()
    ] == [
        (0, 2, {"a": 1, "b": 1}),
        (2, 3, {"a": 1}),
        (3, 4, {"b": 1}),
    ]


def test_rows_count_as_read_without_registered_readers(make_log):
    aging = make_log(stale_after=10)
    fill(aging.topic, [b"a"])
    aging.clock.advance(11)
    aging.log.sweep()
    assert gaps(aging.topic) == [(0, 1, "expired_read")]


def test_policy_keep_retains_unread_rows(make_log):
    aging = make_log(stale_after=10, segment_size_limit=1, retention_policy="keep", retain_bytes=1)
    fill(aging.topic, [b"a"], [b"b"], [b"c"])
    aging.topic.cursors.commit("pipeline", 1)
    aging.clock.advance(11)
    aging.log.sweep()
    assert payloads(aging.topic) == [b"b", b"c"]
    aging.log.configure("t", {"retention_policy": "expire"})
    aging.log.sweep()
    assert gaps(aging.topic) == [(0, 1, "expired_read"), (1, 2, "expired_unread"), (2, 3, "expired_unread")]


def test_policy_keep_without_readers_expires_rows(make_log):
    aging = make_log(stale_after=10, retention_policy="keep")
    fill(aging.topic, [b"a"])
    aging.clock.advance(11)
    aging.log.sweep()
    assert gaps(aging.topic) == [(0, 1, "expired_read")]


def test_oldest_segments_beyond_retain_bytes_are_dropped(make_log):
    aging = make_log(segment_size_limit=1, retain_bytes=7000)
    fill(aging.topic, *([b"%d" % n * 1500] for n in range(6)))
    aging.log.sweep()
    remaining = [p[:1] for p in payloads(aging.topic)]
    assert remaining == [b"%d" % n for n in range(6 - len(remaining), 6)]
    size = sum(f.stat().st_size for f in aging.topic.path.iterdir() if f.suffix in (".arrows", ".index"))
    assert 7000 - 2500 < size <= 7000


def test_changed_settings_apply_at_the_next_sweep(make_log):
    aging = make_log(stale_after=1000, rotate_after=1000)
    fill(aging.topic, [b"a"])
    aging.clock.advance(500)
    assert aging.log.sweep() == []
    aging.log.configure("t", {"stale_after": 400})
    assert [(s.begin, s.end) for s in aging.log.sweep()] == [(0, 1)]


def test_damaged_batch_is_dropped_as_corrupt(make_log):
    aging = make_log(stale_after=10, segment_size_limit=1)
    fill(aging.topic, [b"a"], [b"b", b"b"], [b"c"])
    flip(aging.topic.path / f"{1:020}.arrows", 700)
    aging.clock.advance(11)
    aging.log.sweep()
    assert gaps(aging.topic) == [(0, 1, "expired_read"), (1, 3, "corrupt"), (3, 4, "expired_read")]
    assert aging.topic.gaps()[1].counts == {"events": {BUCKET: 2}}


def test_nothing_is_dropped_if_its_gap_cannot_be_stored(make_log, tmp_path):
    fs = CrashingFileSystem(tmp_path)
    aging = make_log(fs, stale_after=10, segment_size_limit=1)
    fill(aging.topic, [b"a"], [b"b"])
    aging.clock.advance(11)
    (tmp_path / "RESERVE").unlink()
    fs.free = 0
    assert aging.log.sweep() == []
    assert payloads(aging.topic) == [b"a", b"b"]
    fs.free = None
    aging.log.sweep()
    assert gaps(aging.topic) == [(0, 1, "expired_read"), (1, 2, "expired_read")]


def test_retention_frees_a_full_disk(make_log, tmp_path):
    fs = CrashingFileSystem(tmp_path)
    aging = make_log(fs, stale_after=10)
    fill(aging.topic, [b"a" * 500_000])
    aging.clock.advance(11)
    fs.free = 0
    assert [(s.begin, s.end) for s in aging.log.sweep()] == [(0, 1)]
    assert fs.free > 200_000
    fill(aging.topic, [b"b"])
    assert (tmp_path / "RESERVE").stat().st_size == RESERVE_BYTES


@pytest.mark.survives("log", "power cut")
def test_each_offset_is_a_row_or_in_a_gap_after_any_power_cut(tmp_path):
    for stop in range(0, 40, 2):
        folder = tmp_path / str(stop)
        folder.mkdir()
        fs = CrashingFileSystem(folder, seed=stop)
        aging = AgingLog(folder, fs, stale_after=10, segment_size_limit=1)
        for n in range(4):
            aging.topic.append(rows(b"%d" % n), origin(counts={"accepted": 1})).result(10)
        aging.clock.advance(11)
        fs.stop_after = stop
        aging.log.sweep()
        aging.log.close()
        fs.crash()
        log = Log(folder, fs=fs)
        topic = log.topic("t")
        assert topic.end == 4
        dropped = [offset for gap in topic.gaps() for offset in range(gap.begin, gap.end)]
        assert sorted([*dropped, *offsets(topic)]) == [0, 1, 2, 3]
        assert all(gap.received["events"][BUCKET]["accepted"] == gap.end - gap.begin for gap in topic.gaps())
        log.close()


def test_internal_topics_expire_only_if_configured(tmp_path):
    clock = FakeClock()
    settings = TopicSettings(stale_after=10, retain_bytes=1)
    log = Log(tmp_path, settings, overrides={"_receipts": settings}, clock=clock, fs=UNSYNCED)
    for name in ("_ledger", "_receipts"):
        fill(log.topic(name, create=True, internal=True), [b"a"])
    clock.advance(100)
    assert [swept.topic for swept in log.sweep()] == ["_receipts"]
    log.close()


def test_open_reader_continues_behind_expired_rows(make_log):
    aging = make_log(stale_after=10, segment_size_limit=1)
    fill(aging.topic, *([b"%d" % n] for n in range(5)))
    reader = aging.topic.reader()
    stream = reader.read(0)
    next(stream)
    aging.clock.advance(5)
    fill(aging.topic, [b"5"])
    aging.clock.advance(6)
    aging.log.sweep()
    assert [offset for stored in stream for offset in range(stored.base, stored.end)] == []
    assert payloads(reader) == [b"5"]
    assert reader.start == 5


def test_topic_stays_usable_if_its_gap_does_not_fit_on_the_disk(make_log, tmp_path):
    fs = CrashingFileSystem(tmp_path)
    aging = make_log(fs, stale_after=10)
    fill(aging.topic, [b"a"])
    (tmp_path / "RESERVE").unlink()
    fs.free = 20
    with pytest.raises(LogFull):
        aging.log.delete("t")
    assert payloads(aging.topic) == [b"a"]
    fs.free = None
    fill(aging.topic, [b"b"])
    assert payloads(aging.topic) == [b"a", b"b"]

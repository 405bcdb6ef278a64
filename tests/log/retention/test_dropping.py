"""Retention: what goes, when, and what is entered for it."""

import pytest

from penstock.counts import elsewhere
from penstock.log import Gap, Log, LogFull, TopicReader, TopicSettings
from penstock.log.resources import RESERVE_BYTES
from penstock.log.retention.sweeper import INTERVAL
from penstock.testing import CrashingFileSystem, FakeClock
from tests.log.log_helpers import BUCKET, UNSYNCED, fill, flip, offsets, origin, payloads, rows

HOUR = 3600.0


class Kept:
    """A log on a fake clock."""

    def __init__(self, folder, fs=UNSYNCED, **settings):
        self.clock = FakeClock()
        self.log = Log(folder, TopicSettings(**settings), clock=self.clock, fs=fs, committers=1)
        self.topic = self.log.topic("t", create=True)


@pytest.fixture
def kept(tmp_path):
    made = []

    def make(fs=UNSYNCED, **settings):
        made.append(Kept(tmp_path, fs, **settings))
        return made[-1]

    yield make
    for one in made:
        one.log.close()


def gaps(topic):
    return [(gap.begin, gap.end, gap.reason) for gap in topic.gaps()]


@pytest.mark.parametrize("rate", [300, 3 * HOUR, 20 * HOUR])
def test_no_entry_is_ever_older_than_retention_roll_age_and_sweep_together_nor_goes_before_its_time(kept, rate):
    """slogd's README, Message retention: with 7 days and 6 hours, at worst 7 days, 6 hours, and 5 minutes old."""
    retention, roll = 28 * HOUR, HOUR  # the same rule in an hour's steps
    one = kept(stale_after=retention, rotate_after=roll)
    born, gone, passed = {}, {}, 0.0
    while passed < retention + 5 * HOUR:
        if passed % rate == 0:
            born[one.topic.append(rows(b"x"), origin()).result(10).first] = one.clock.now
        one.clock.advance(INTERVAL)
        passed += INTERVAL
        if passed > retention - HOUR or passed % HOUR == 0:
            one.log.sweep()
            start = one.topic.start
            gone |= {offset: one.clock.now for offset in born if offset < start and offset not in gone}
    ages = [gone[offset] - born[offset] for offset in gone]
    assert min(ages) >= retention
    assert max(ages) <= retention + roll + INTERVAL


def test_a_segment_is_closed_by_its_oldest_entry_also_when_nothing_comes_any_more(kept):
    one = kept(rotate_after=100, stale_after=1000)
    fill(one.topic, [b"a"])
    one.clock.advance(99)
    one.log.sweep()
    assert len(list(one.topic.path.glob("*.arrows"))) == 1
    one.clock.advance(1)
    one.log.sweep()
    one.log.sweep()
    assert len(list(one.topic.path.glob("*.arrows"))) == 2


def test_what_every_reader_has_read_and_what_one_has_not_are_gaps_of_their_own(kept):
    one = kept(stale_after=10)
    counts = {"accepted": 4, "taken": 9, **elsewhere(BUCKET - 60, {"taken": 2})}
    one.topic.append(rows(*[b"x"] * 4), origin(counts=counts)).result(10)
    one.topic.append(rows(*[b"y"] * 4), origin("other", counts={"accepted": 4})).result(10)
    one.topic.cursors.commit("pipeline", 6)
    one.topic.cursors.commit("ahead", 8)
    one.clock.advance(11)
    swept = one.log.sweep()
    assert [(s.topic, s.begin, s.end, s.reason) for s in swept] == [
        ("t", 0, 6, "expired_read"),
        ("t", 6, 8, "expired_unread"),
    ]
    assert all(s.bytes > 100 for s in swept)
    received = {
        "events": {BUCKET: {"accepted": 4, "taken": 9}, BUCKET - 60: {"taken": 2}},
        "other": {BUCKET: {"accepted": 4}},
    }
    assert one.topic.gaps() == [
        Gap(0, 6, "expired_read", {"events": {BUCKET: 4}, "other": {BUCKET: 2}}, received),
        Gap(6, 8, "expired_unread", {"other": {BUCKET: 2}}, {}),
    ]
    assert TopicReader(one.topic.path).gaps() == one.topic.gaps()
    fill(one.topic, [b"new"])
    assert offsets(one.topic) == [8]


def test_without_a_registered_reader_nothing_counts_as_unread(kept):
    one = kept(stale_after=10)
    fill(one.topic, [b"a"])
    one.clock.advance(11)
    one.log.sweep()
    assert gaps(one.topic) == [(0, 1, "expired_read")]


def test_keep_refuses_to_expire_what_a_reader_has_not_read(kept):
    one = kept(stale_after=10, segment_size_limit=1, retention_policy="keep", retain_bytes=1)
    fill(one.topic, [b"a"], [b"b"], [b"c"])
    one.topic.cursors.commit("pipeline", 1)
    one.clock.advance(11)
    one.log.sweep()
    assert payloads(one.topic) == [b"b", b"c"]
    one.log.configure("t", {"retention_policy": "expire"})
    one.log.sweep()
    assert gaps(one.topic) == [(0, 1, "expired_read"), (1, 2, "expired_unread"), (2, 3, "expired_unread")]


def test_keep_without_readers_expires_all_the_same(kept):
    one = kept(stale_after=10, retention_policy="keep")
    fill(one.topic, [b"a"])
    one.clock.advance(11)
    one.log.sweep()
    assert gaps(one.topic) == [(0, 1, "expired_read")]


def test_what_is_more_than_retain_bytes_goes_the_oldest_first(kept):
    one = kept(segment_size_limit=1, retain_bytes=7000)
    fill(one.topic, *([b"%d" % n * 1500] for n in range(6)))
    one.log.sweep()
    left = [p[:1] for p in payloads(one.topic)]
    assert left == [b"%d" % n for n in range(6 - len(left), 6)]
    size = sum(f.stat().st_size for f in one.topic.path.iterdir() if f.suffix in (".arrows", ".index"))
    assert 7000 - 2500 < size <= 7000


def test_settings_that_are_changed_are_in_force_at_the_next_sweep(kept):
    one = kept(stale_after=1000, rotate_after=1000)
    fill(one.topic, [b"a"])
    one.clock.advance(500)
    assert one.log.sweep() == []
    one.log.configure("t", {"stale_after": 400})
    assert [(s.begin, s.end) for s in one.log.sweep()] == [(0, 1)]


def test_what_cannot_be_read_any_more_goes_as_corrupt(kept):
    one = kept(stale_after=10, segment_size_limit=1)
    fill(one.topic, [b"a"], [b"b", b"b"], [b"c"])
    flip(one.topic.path / f"{1:020}.arrows", 700)
    one.clock.advance(11)
    one.log.sweep()
    assert gaps(one.topic) == [(0, 1, "expired_read"), (1, 3, "corrupt"), (3, 4, "expired_read")]
    assert one.topic.gaps()[1].counts == {"events": {BUCKET: 2}}


def test_on_a_full_disk_nothing_goes_that_could_not_be_entered(kept, tmp_path):
    fs = CrashingFileSystem(tmp_path)
    one = kept(fs, stale_after=10, segment_size_limit=1)
    fill(one.topic, [b"a"], [b"b"])
    one.clock.advance(11)
    (tmp_path / "RESERVE").unlink()
    fs.free = 0
    assert one.log.sweep() == []
    assert payloads(one.topic) == [b"a", b"b"]
    fs.free = None
    one.log.sweep()
    assert gaps(one.topic) == [(0, 1, "expired_read"), (1, 2, "expired_read")]


def test_retention_frees_a_disk_that_is_full_to_the_last_byte(kept, tmp_path):
    fs = CrashingFileSystem(tmp_path)
    one = kept(fs, stale_after=10)
    fill(one.topic, [b"a" * 500_000])
    one.clock.advance(11)
    fs.free = 0
    assert [(s.begin, s.end) for s in one.log.sweep()] == [(0, 1)]
    assert fs.free > 200_000
    fill(one.topic, [b"b"])
    assert (tmp_path / "RESERVE").stat().st_size == RESERVE_BYTES


def test_wherever_a_power_cut_comes_each_offset_is_a_row_or_in_one_gap_with_its_counts(tmp_path):
    for stop in range(0, 40, 2):
        folder = tmp_path / str(stop)
        folder.mkdir()
        fs = CrashingFileSystem(folder, seed=stop)
        one = Kept(folder, fs, stale_after=10, segment_size_limit=1)
        for n in range(4):
            one.topic.append(rows(b"%d" % n), origin(counts={"accepted": 1})).result(10)
        one.clock.advance(11)
        fs.stop_after = stop
        one.log.sweep()
        one.log.close()
        fs.crash()
        log = Log(folder, fs=fs)
        topic = log.topic("t")
        assert topic.end == 4
        gone = [offset for gap in topic.gaps() for offset in range(gap.begin, gap.end)]
        assert sorted([*gone, *offsets(topic)]) == [0, 1, 2, 3]
        assert all(gap.received["events"][BUCKET]["accepted"] == gap.end - gap.begin for gap in topic.gaps())
        log.close()


def test_internal_topics_are_kept_for_ever_unless_they_are_configured(tmp_path):
    clock = FakeClock()
    settings = TopicSettings(stale_after=10, retain_bytes=1)
    log = Log(tmp_path, settings, overrides={"_receipts": settings}, clock=clock, fs=UNSYNCED)
    for name in ("_ledger", "_receipts"):
        fill(log.topic(name, create=True, internal=True), [b"a"])
    clock.advance(100)
    assert [one.topic for one in log.sweep()] == ["_receipts"]
    log.close()


def test_a_reader_that_was_there_before_goes_on_behind_what_expired(kept):
    one = kept(stale_after=10, segment_size_limit=1)
    fill(one.topic, *([b"%d" % n] for n in range(5)))
    reader = one.topic.reader()
    stream = reader.read(0)
    next(stream)
    one.clock.advance(5)
    fill(one.topic, [b"5"])
    one.clock.advance(6)
    one.log.sweep()
    assert [offset for stored in stream for offset in range(stored.base, stored.end)] == []
    assert payloads(reader) == [b"5"]
    assert reader.start == 5


def test_a_topic_with_a_gap_too_large_for_the_disk_can_be_swept_later(kept, tmp_path):
    fs = CrashingFileSystem(tmp_path)
    one = kept(fs, stale_after=10)
    fill(one.topic, [b"a"])
    (tmp_path / "RESERVE").unlink()
    fs.free = 20
    with pytest.raises(LogFull):
        one.log.delete("t")
    assert payloads(one.topic) == [b"a"]
    fs.free = None
    fill(one.topic, [b"b"])
    assert payloads(one.topic) == [b"a", b"b"]

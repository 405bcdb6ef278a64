"""An implausible clock is detected, loses nothing, and is trusted again once it is right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import Limits, Log, ProducerSequence, TopicSettings
from penstock.log.plausible_clock import (
    BEHIND_BELIEVED_AFTER_S,
    FILE_NAME,
    MAX_DOWNTIME_S,
    MAX_DRIFT_S,
    STEADY_AFTER_S,
    PlausibleClock,
    load_clock_state,
)
from penstock.testing import FakeClock
from tests.fuzzed import documents
from tests.log.log_helpers import UNSYNCED, fill, origin, payloads, rows

YEAR = 365 * 86_400.0
DAY = 86_400.0
SETTINGS = TopicSettings(segment_size_limit=1, stale_after=7 * DAY)


@pytest.fixture
def clock():
    return FakeClock(1_790_000_000.0)


def opened(folder, clock):
    return Log(folder, SETTINGS, clock=clock, fs=UNSYNCED)


def run(log, clock, seconds, step=300.0):
    """Advance time in steps and sweep, as the sweeper does."""
    for _ in range(int(seconds / step)):
        clock.advance(step)
        log.sweep()


def times(topic):
    return [stored.first / 1e6 for stored in topic.reader().read(0)]


@pytest.mark.survives("log", "wrong clock")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("file_kept", [False, True])
def test_clock_a_year_ahead_drops_nothing_and_recovers(tmp_path, clock, restarted, file_kept, caplog):
    log = opened(tmp_path, clock)
    fill(log.topic("t", create=True), [b"a"], [b"b"])
    if restarted:
        log.close()
    if not file_kept:
        (tmp_path / "CLOCK").unlink(missing_ok=True)
    clock.jump(YEAR)
    log = opened(tmp_path, clock) if restarted else log
    topic = log.topic("t")
    fill(topic, [b"ahead"])
    run(log, clock, 2 * DAY, 3600)
    assert payloads(topic) == [b"a", b"b", b"ahead"]
    assert not log.clock.right
    assert "the clock is 365 days ahead of what it should say: retention by age" in caplog.text
    assert not load_clock_state(tmp_path, clock).right
    clock.jump(-YEAR)
    run(log, clock, STEADY_AFTER_S + 600)
    assert log.clock.right
    assert load_clock_state(tmp_path, clock).right
    fill(topic, [b"after"], [b"more"])
    assert times(topic)[-1] == pytest.approx(clock.now, abs=1)
    run(log, clock, 8 * DAY, 3600)
    assert b"a" not in payloads(topic)
    log.close()


def test_rows_stamped_by_a_wrong_clock_expire_with_later_rows(tmp_path, clock):
    log = opened(tmp_path, clock)
    topic = log.topic("t", create=True)
    clock.jump(YEAR)
    fill(topic, [b"ahead"])
    clock.jump(-YEAR)
    run(log, clock, STEADY_AFTER_S + 600)
    fill(topic, [b"1"], [b"2"])
    run(log, clock, 8 * DAY, 3600)
    assert b"ahead" not in payloads(topic)
    assert topic.reader().at_timestamp(round(clock.now * 1e6)) == topic.end
    log.close()


def test_timestamps_are_right_after_a_restart_with_the_right_clock(tmp_path, clock):
    log = opened(tmp_path, clock)
    fill(log.topic("t", create=True), [b"a"])
    log.close()
    clock.jump(YEAR)
    log = opened(tmp_path, clock)
    fill(log.topic("t"), [b"ahead"])
    log.close()
    clock.jump(-YEAR)
    clock.advance(60)
    log = opened(tmp_path, clock)
    assert log.clock.right
    fill(log.topic("t"), [b"b"])
    assert times(log.topic("t"))[-1] == pytest.approx(clock.now, abs=1)
    log.close()


def test_clock_ahead_from_the_first_start_is_trusted_after_an_hour(tmp_path, clock):
    clock.jump(YEAR)
    log = opened(tmp_path, clock)
    topic = log.topic("t", create=True)
    fill(topic, [b"ahead"])
    clock.jump(-YEAR)
    fill(topic, [b"not yet believed"])
    assert times(topic)[-1] > clock.now + YEAR - 10
    run(log, clock, BEHIND_BELIEVED_AFTER_S + 600)
    fill(topic, [b"b"])
    assert times(topic)[-1] == pytest.approx(clock.now, abs=1)
    log.close()


def test_retention_by_age_continues_after_confirmation_of_a_month_off(tmp_path, clock):
    log = opened(tmp_path, clock)
    fill(log.topic("t", create=True), [b"a"], [b"b"])
    log.close()
    clock.jump(30 * DAY)
    log = opened(tmp_path, clock)
    assert log.sweep() == []
    state = log.clock.state()
    assert (state.right, state.ahead, state.believed_in) == (False, 30 * DAY, 30 * DAY)
    log.clock.accept()
    assert log.clock.state().text() == ""
    assert log.sweep()
    log.close()


def test_retention_by_age_continues_once_the_machine_ran_as_long_as_it_was_off(tmp_path, clock):
    log = opened(tmp_path, clock)
    log.close()
    clock.jump(3 * DAY)
    log = opened(tmp_path, clock)
    run(log, clock, 3 * DAY - 3600, 3600)
    assert not log.clock.right
    run(log, clock, 7200, 3600)
    assert log.clock.right
    log.close()


@pytest.mark.parametrize("seconds", [MAX_DRIFT_S - 1, -MAX_DRIFT_S + 1])
def test_small_clock_change_is_trusted(tmp_path, clock, seconds):
    log = opened(tmp_path, clock)
    clock.jump(seconds)
    assert log.clock.right
    log.close()
    clock.jump(MAX_DOWNTIME_S - 10)
    log = opened(tmp_path, clock)
    assert log.clock.right
    log.close()


def test_retention_by_size_continues_while_the_clock_is_wrong(tmp_path, clock):
    log = opened(tmp_path, clock)
    fill(log.topic("t", create=True), [b"a" * 5000], [b"b" * 5000], [b"c"])
    clock.jump(YEAR)
    log.configure("t", {"retain_bytes": 4000})
    assert [expired_gap.begin for expired_gap in log.sweep()] == [0, 1]
    log.close()


def test_clock_that_was_never_set_is_never_trusted(tmp_path, clock):
    log = opened(tmp_path, clock)
    clock.jump(-clock.now + 1000)
    run(log, clock, DAY, 3600)
    assert log.clock.state().believed_in is None
    assert not log.clock.right
    log.close()


@pytest.mark.survives("transactions", "wrong clock")
def test_clock_jump_neither_forgets_producers_nor_ends_transactions(tmp_path, clock):
    log = Log(tmp_path, SETTINGS, clock=clock, fs=UNSYNCED, transactions=Limits(timeout=60))
    topic = log.topic("t", create=True)
    sequence = ProducerSequence("p", 5)
    topic.append(rows(b"a"), origin(), producer=sequence).result(10)
    transaction = log.transactions.begin()
    log.transactions.append(transaction, "t", rows(b"b"), origin())
    clock.jump(YEAR)
    log.sweep()
    fill(topic, [b"x"])
    assert topic.append(rows(b"a"), origin(), producer=sequence).result(10).first == 0
    assert log.transactions.commit(transaction)["t"][0].count == 1
    log.close()


@pytest.mark.parametrize("data", [b"", b"x", b"00000000{}", b'6d9e8b4a{"format":1}'])
def test_damaged_file_counts_as_absent(tmp_path, clock, data):
    log = opened(tmp_path, clock)
    fill(log.topic("t", create=True), [b"a"])
    log.close()
    (tmp_path / "CLOCK").write_bytes(data)
    clock.jump(YEAR)
    log = opened(tmp_path, clock)
    assert not log.clock.right
    log.close()


@given(documents("time", "ahead"), st.sampled_from([0, 1_790_000_000]))
def test_log_starts_with_any_bytes_in_the_clock_file(tmp_path_factory, data, newest):
    folder = tmp_path_factory.mktemp("topics")
    (folder / FILE_NAME).write_bytes(data)
    assert isinstance(load_clock_state(folder, FakeClock()).text(), str)
    clock = PlausibleClock(FakeClock(), UNSYNCED, folder / FILE_NAME, lambda: newest * 1_000_000)
    assert isinstance(clock.state().text(), str)

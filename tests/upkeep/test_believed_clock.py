"""Retention and sweeps stop while the clock is not trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.landing.table_paths import Layout
from penstock.log.plausible_clock import BEHIND_BELIEVED_AFTER_S, MAX_DRIFT_S, STEADY_AFTER_S
from penstock.testing import FakeClock
from penstock.upkeep.believed_clock import BelievedClock
from tests.upkeep.clocks import DaemonAnswers

DAY = 86_400.0
START = 1_790_000_000.0


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.for_tables(tmp_path / "tables")
    layout.clock.parent.mkdir(parents=True)
    return layout


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def daemon(clock: FakeClock) -> DaemonAnswers:
    return DaemonAnswers(clock)


def let_pass(believed: BelievedClock, clock: FakeClock, seconds: float) -> None:
    """Advance the clock in small steps, as the maintenance loop sees it."""
    for _ in range(round(seconds / 300)):
        clock.advance(300)
        believed.watch()


def test_clock_is_believed_when_daemon_and_process_agree(
    layout: Layout, clock: FakeClock, daemon: DaemonAnswers
) -> None:
    assert BelievedClock(layout, daemon, clock).now() == START


@pytest.mark.parametrize(
    "answers", [{"is_away": True}, {"right": False}, {"ahead": MAX_DRIFT_S + 1}, {"ahead": -MAX_DRIFT_S - 1}]
)
def test_clock_is_not_believed_when_daemon_does_not_vouch_for_it(
    layout: Layout, clock: FakeClock, answers: dict[str, object]
) -> None:
    assert BelievedClock(layout, DaemonAnswers(clock, **answers), clock).now() is None  # type: ignore[arg-type]


def test_clock_is_not_believed_without_daemon(layout: Layout, clock: FakeClock) -> None:
    assert BelievedClock(layout, None, clock).now() is None


@pytest.mark.parametrize(
    "answer", [{}, {"right": True}, {"right": True, "time": "soon"}, [], {"right": 1, "time": None}]
)
def test_answer_of_another_program_is_no_vouching(layout: Layout, clock: FakeClock, answer: object) -> None:
    class Foreign:
        def clock(self) -> object:
            return answer

    assert BelievedClock(layout, Foreign(), clock).now() is None  # type: ignore[arg-type]


@pytest.mark.parametrize("jump", [730 * DAY, -DAY])
def test_jump_while_running_is_noticed_though_daemon_vouches(
    layout: Layout, clock: FakeClock, daemon: DaemonAnswers, jump: float
) -> None:
    believed = BelievedClock(layout, daemon, clock)
    clock.jump(jump)
    assert believed.now() is None
    assert believed.expected_micros() == START * 1e6


@pytest.mark.survives("merge, deletion, restore", "wrong clock")
def test_start_with_wrong_clock_is_noticed_by_time_of_last_life(
    layout: Layout, clock: FakeClock, daemon: DaemonAnswers
) -> None:
    BelievedClock(layout, daemon, clock).store_time()
    clock.jump(730 * DAY)
    believed = BelievedClock(layout, daemon, clock)
    assert believed.now() is None
    clock.jump(-730 * DAY)
    let_pass(believed, clock, STEADY_AFTER_S + 600)
    assert believed.now() == clock.now


def test_clock_that_was_set_back_is_believed_again_once_it_has_gone_on(
    layout: Layout, clock: FakeClock, daemon: DaemonAnswers
) -> None:
    believed = BelievedClock(layout, daemon, clock)
    clock.jump(-30 * DAY)
    let_pass(believed, clock, BEHIND_BELIEVED_AFTER_S + 600)
    assert believed.now() == clock.now


def test_clock_that_an_operator_accepted_is_believed_at_once(
    layout: Layout, clock: FakeClock, daemon: DaemonAnswers
) -> None:
    believed = BelievedClock(layout, daemon, clock)
    clock.jump(730 * DAY)
    assert believed.now() is None
    daemon.accepted = True
    assert believed.now() == START + 730 * DAY


def test_age_of_files_counts_only_hours_after_a_doubt(layout: Layout, clock: FakeClock, daemon: DaemonAnswers) -> None:
    believed = BelievedClock(layout, daemon, clock)
    assert believed.now_if_steady(6) == START
    clock.jump(-DAY)
    believed.watch()
    clock.jump(DAY)
    let_pass(believed, clock, STEADY_AFTER_S + 600)
    assert believed.now() == clock.now
    assert believed.now_if_steady(6) is None
    let_pass(believed, clock, 6 * 3600)
    assert believed.now_if_steady(6) == clock.now

"""What needs attention."""

from __future__ import annotations

from penstock.console.daemon_poll import Daemon
from penstock.console.findings import BAD, findings
from tests.console.console_balance import balance, daemon


def said(seen: Daemon) -> list[str]:
    return [one.what for one in findings(seen)]


def test_a_pipe_that_runs_needs_nothing() -> None:
    assert said(daemon(balance(100), balance(1000))) == []


def test_a_silent_daemon_comes_first() -> None:
    seen = daemon(balance())
    seen.error = "no answer"
    assert findings(seen)[0].level == BAD
    assert "no answer" in said(seen)[0]


def test_what_is_unaccounted_for_is_bad() -> None:
    wrong = balance()
    wrong["unaccounted"] = 3
    assert said(daemon(wrong))[0] == "3 messages are unaccounted for"


def test_a_clock_that_is_not_believed_is_bad() -> None:
    seen = balance() | {"clock": "the clock is 365 days ahead: say that it is right: penstock clock --accept"}
    (found,) = findings(daemon(seen))
    assert (found.level, found.advice) == (BAD, "penstock clock --accept")
    assert found.what == "The clock is 365 days ahead: say that it is right"


def test_losses_are_told_only_while_they_are_new() -> None:
    lossy = [balance(100, kernel_dropped=5), balance(200, kernel_dropped=12, **{"refused.oversize": 1})]
    assert said(daemon(*lossy)) == [
        "in: the kernel dropped 7 datagrams within the hour (its receive buffer holds 213k bytes)",
        "in: messages larger than defrag.max_size: 1 within the hour",
    ]
    assert said(daemon(lossy[1], lossy[1], every=5)) == []


def test_much_quarantine_is_told_with_its_worst_reason() -> None:
    before, now = balance(100), balance(1000)
    now["topics"][0]["fates"]["quarantined.bad_json"] = 500
    assert "events: 35.6% of the last hour are in quarantine, most for bad json" in said(daemon(before, now))


def test_a_topic_nobody_reads_and_one_that_stands_still_are_told() -> None:
    unread = balance()
    unread["topics"][0]["read_by_pipeline"] = False
    assert said(daemon(unread)) == ["events: no pipeline has read it yet"]
    still = [balance() for _ in range(20)]
    assert said(daemon(*still)) == ["events: 10 messages wait, nothing has landed for 2 min"]


def test_a_slow_and_a_failing_handler_are_told() -> None:
    before, now = balance(), balance()
    now["routes"][0] |= {"policy_drop": 4, "handler_failed": 2}
    assert said(daemon(before, now))[:2] == [
        "in: handler log was too slow, 4 messages were dropped",
        "in: handler log failed on 2 messages",
    ]

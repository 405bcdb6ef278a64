"""What needs attention."""

from __future__ import annotations

from penstock.console.daemon_poll import Daemon
from penstock.console.findings import BAD, findings
from tests.console.console_balance import balance, daemon


def said(seen: Daemon) -> list[str]:
    return [one.what for one in findings(seen)]


def test_a_pipe_that_runs_needs_nothing() -> None:
    assert said(daemon(balance(100), balance(1000))) == []


def test_what_is_unaccounted_for_is_bad() -> None:
    wrong = balance()
    wrong["unaccounted"] = 3
    assert said(daemon(wrong))[0] == "3 messages are unaccounted for"


def test_a_clock_that_is_not_believed_is_bad() -> None:
    seen = balance() | {"clock": "the clock is 365 days ahead: say that it is right: penstock clock --accept"}
    (found,) = findings(daemon(seen))
    assert (found.level, found.advice) == (BAD, "penstock clock --accept")
    assert found.what == "The clock is 365 days ahead: say that it is right"


def test_losses_of_the_hour_are_told_with_what_to_do() -> None:
    seen = daemon(balance(kernel_dropped=5000))
    seen.hour = balance(1000, kernel_dropped=7, **{"refused.oversize": 1, "invalid.header": 2})
    assert said(seen) == [
        "in: 7 lost within the hour: datagrams that the kernel dropped: the receive buffer was full "
        "(the receive buffer holds 213k bytes)",
        "in: 1 lost within the hour: messages that are too large",
        "in: 2 lost within the hour: fragments with an invalid header",
    ]
    assert [one.advice for one in findings(seen)][1] == "raise listener.in.defrag.max_size (udp), or its max_line"
    seen.hour = balance(1000)
    assert said(seen) == []


def test_much_quarantine_is_told_with_its_worst_reason() -> None:
    seen = daemon(balance(100))
    seen.hour = balance(1000)
    seen.hour["topics"][0]["fates"]["quarantined.bad_json"] = 500
    assert "events: 33.6% of the last hour are in quarantine, most for bad json" in said(seen)


def test_a_topic_nobody_reads_and_one_that_stands_still_are_told() -> None:
    unread = balance()
    unread["topics"][0]["read_by_pipeline"] = False
    assert said(daemon(unread)) == ["events: no pipeline has read it yet"]
    assert findings(daemon(unread), lands=True) == [], "its first batch is under way"
    still = [balance() for _ in range(20)]
    assert said(daemon(*still)) == ["events: 10 messages wait, nothing has landed for 2 min"]


def test_many_topics_that_nobody_reads_are_one_finding() -> None:
    unread = balance()
    unread["topics"] = [{**unread["topics"][0], "topic": f"t{n}", "read_by_pipeline": False} for n in range(1000)]
    assert said(daemon(unread)) == ["t0, t1, t2, t3, t4 and 995 topics more: no pipeline has read them yet"]
    seen = daemon(unread)
    seen.latest.names = frozenset(["t7"])
    assert said(seen) == ["t7: no pipeline has read it yet"], "those that were deleted are none of them"


def test_what_another_handler_missed_is_told_beside_what_is_lost() -> None:
    seen = daemon(balance())
    seen.hour = balance(1000)
    missed = {"handler": "console", "policy_drop": 4, "handler_failed": 2}
    seen.hour["routes"].append(seen.hour["routes"][0] | missed)
    assert said(seen) == [
        "in to console: 4 within the hour: messages that handler console was too slow for",
        "in to console: 2 within the hour: messages that handler console could not take",
    ]

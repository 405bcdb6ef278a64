"""Findings of the first page."""

from __future__ import annotations

import time

from penstock.console.components.receipt_details import verdict_html
from penstock.console.daemon_poll import Daemon
from penstock.console.findings import BAD, WARN, findings
from penstock.console.kernel_drops import RMEM_MAX
from tests.console.console_balance import balance, daemon


def problems(state: Daemon) -> list[str]:
    return [finding.problem for finding in findings(state)]


def test_running_pipe_has_no_finding() -> None:
    assert problems(daemon(balance(100), balance(1000))) == []


def test_unaccounted_messages_are_bad() -> None:
    unbalanced = balance()
    unbalanced["unaccounted"] = 3
    assert problems(daemon(unbalanced))[0] == "3 messages unaccounted for"


def test_implausible_clock_is_bad() -> None:
    untrusted = balance() | {"clock": "the clock is 365 days ahead: say that it is right: penstock clock --accept"}
    (clock_finding,) = findings(daemon(untrusted))
    assert (clock_finding.level, clock_finding.advice) == (BAD, "penstock clock --accept")
    assert clock_finding.problem == "The clock is 365 days ahead: say that it is right"


def test_stopped_receiver_is_a_finding() -> None:
    state = daemon(balance())
    state.stat["listeners"]["in"] |= {"silent_s": 3.0, "pid": 42}
    assert problems(state) == []
    state.stat["listeners"]["in"]["silent_s"] = 12.4
    (finding,) = findings(state)
    assert finding.problem == "in: receiver stopped for 12 s, its messages wait in the kernel"
    assert finding.advice == "continue it: kill -CONT 42, or end it: kill -KILL 42 (it is restarted)"


def test_receiver_that_cannot_start_is_not_stopped_as_well() -> None:
    state = daemon(
        balance() | {"not_started": [{"process": "receiver in", "text": "receiver in cannot start: no space"}]}
    )
    state.stat["listeners"]["in"] |= {"silent_s": 12.4, "pid": 42}
    assert problems(state) == ["Receiver in cannot start: no space"]


def test_unreadable_files_of_the_tables_are_the_first_findings_and_make_the_verdict_bad() -> None:
    state = daemon(balance())
    state.latest.table_facts = {"unreadable": [f"landed/{number}.parquet is damaged" for number in range(7)]}
    assert problems(state) == [f"landed/{number}.parquet is damaged" for number in range(5)]
    assert state.receipt is not None
    html = verdict_html(state.receipt)
    assert 'class="verdict bad"' in html
    assert "7 files of the tables cannot be read" in html


def test_stopped_pipeline_is_a_finding_and_the_state_of_every_page() -> None:
    state = daemon(balance() | {"silent": {"pipeline": 12.4}})
    (finding,) = findings(state)
    assert finding.problem == "pipeline stopped for 12 s, its messages wait in the log"
    assert (finding.level, finding.advice) == (WARN, "penstock pipeline status")
    assert state.silent_processes == {"pipeline": 12.4}


def test_silent_forwarder_is_a_finding() -> None:
    state = daemon(balance())
    state.stat["listeners"]["in"]["handlers"] = [{"name": "kafka", "silent_s": 12.4, "pid": 42}]
    (finding,) = findings(state)
    assert finding.problem == "in: forwarder to kafka silent for 12 s, its messages wait in the log buffer"
    assert finding.advice == "if it is stopped, continue it: kill -CONT 42; if it is not, see why kafka hangs"


def test_messages_that_lack_fragments_are_a_finding_before_they_are_lost() -> None:
    incomplete = balance(open=3, **{"fragment.open": 1})
    assert problems(daemon(balance(), incomplete, incomplete, incomplete, interval_s=1.0)) == [], "for two seconds only"
    assert problems(daemon(incomplete, incomplete, balance(), incomplete, incomplete, interval_s=1.0)) == []
    (finding,) = findings(daemon(*[incomplete] * 4, interval_s=1.0))
    assert finding.problem == "in: 3 messages incomplete, only 1 fragment arrived so far"
    assert finding.level == WARN
    assert "listener.in.defrag.expire_time" in finding.advice


def test_losses_of_the_hour_have_a_remedy() -> None:
    state = daemon(balance(kernel_dropped=5000))
    state.hour = balance(1000, kernel_dropped=7, **{"refused.oversize": 1, "invalid.header": 2})
    assert problems(state) == [
        "in: 7 lost within the hour: datagrams that the kernel dropped: the receive buffer was full "
        f"(the receive buffer holds 212,992 bytes, net.core.rmem_max is {int(RMEM_MAX.read_text()):,})",
        "in: 1 lost within the hour: messages that are too large",
        "in: 2 lost within the hour: fragments with an invalid header",
    ]
    assert [finding.advice for finding in findings(state)][
        1
    ] == "raise listener.in.defrag.max_size (udp), or its max_line"
    state.hour = balance(1000)
    assert problems(state) == []


def test_large_quarantine_names_its_worst_reason() -> None:
    state = daemon(balance(100))
    state.hour = balance(1000)
    state.hour["topics"][0]["fates"]["quarantined.bad_json"] = 500
    assert "events: 33.6% of the last hour is in quarantine, most of it for bad json" in problems(state)


def test_unread_and_stalled_topics_are_findings() -> None:
    unread = balance()
    unread["topics"][0]["read_by_pipeline"] = False
    assert problems(daemon(unread)) == ["events: no pipeline has read it yet"]
    assert findings(daemon(unread), pipeline_runs=True) == [], "its first batch is under way"
    stalled = [balance() for _ in range(20)]
    assert problems(daemon(*stalled)) == ["events: 10 messages pending, nothing has landed for 2 min"]


def test_many_unread_topics_are_one_finding() -> None:
    unread = balance()
    unread["topics"] = [{**unread["topics"][0], "topic": f"t{n}", "read_by_pipeline": False} for n in range(1000)]
    assert problems(daemon(unread)) == ["t0, t1, t2, t3, t4 and 995 more topics: no pipeline has read them yet"]
    state = daemon(unread)
    state.latest.names = frozenset(["t7"])
    assert problems(state) == ["t7: no pipeline has read it yet"], "deleted topics are not counted"


def test_messages_missed_by_another_handler_are_findings() -> None:
    state = daemon(balance())
    state.hour = balance(1000)
    missed = {"handler": "console", "policy_drop": 4, "handler_failed": 2}
    state.hour["routes"].append(state.hour["routes"][0] | missed)
    assert problems(state) == [
        "in to console: 4 within the hour: messages that handler console was too slow for",
        "in to console: 2 within the hour: messages that handler console could not take",
    ]


def test_disk_that_is_nearly_full_is_a_finding() -> None:
    (low,) = findings(daemon(balance() | {"low_disks": {"/data": 3 << 30}}))
    assert (low.level, low.problem) == (WARN, "the disk of /data is nearly full: 3 GiB free (alarms.disk_free)")
    assert "penstock cleanup" in low.advice


def test_full_disk_and_alarms_that_fail_are_findings() -> None:
    state, now_ms = daemon(balance()), int(time.time() * 1000)
    disk = {"kind": "disk", "at": now_ms - 1000, "text": "the disk is full: events: no space left"}
    state.events = [disk | {"until": 0}]
    state.latest.alarms = {"sent": 3, "failed": 1, "dropped": 0}
    full, failed = findings(state)
    assert (full.level, full.problem) == (BAD, "The disk is full: events: no space left")
    assert "penstock cleanup" in full.advice
    assert (failed.level, failed.problem) == (WARN, "1 alarm failed since the daemon's start")
    assert "does not accept alarms" in failed.advice
    state.events = [disk | {"until": now_ms, "text": "the disk was full for 1.0 s"}, disk | {"until": 1, "at": 0}]
    state.latest.alarms = {}
    assert problems(state) == ["within the hour the disk was full for 1.0 s"]

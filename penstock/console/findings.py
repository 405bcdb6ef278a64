"""Findings for the panel "What needs attention": from the balance, its last hour, and statistics.

A finding is computed from the latest answers each time; nothing is stored, so a finding goes when its cause does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.console.daemon_poll import HOUR_S, Daemon
from penstock.console.kernel_drops import KernelDrops
from penstock.console.wording import counted, exact, lasted, meaning, size
from penstock.counts import Counts, Name
from penstock.landing.damaged_files import PUT_BACK
from penstock.ledger.receipt import losses_of, not_started_in, receipt

QUARANTINE_WARNING_SHARE = 0.01
STALLED_S = 120.0
"""Time without a landed row: a batch takes seconds, and the first one waits for the start of Spark."""
INCOMPLETE_S = 3.0
"""A listener is reported if it had incomplete messages all this time: fragments usually arrive within moments."""
MAX_NAMED_FILES = 5
"""Damaged files that are named; the verdict has their number."""
MAX_NAMED_TOPICS = 5
"""Topics that one finding names; there may be thousands."""
BAD, WARN, NOTE = "bad", "warn", "note"
FREE_DISK = (
    "free space: penstock cleanup, lower log.topic_defaults.retain_bytes and stale_after (of the largest topic: "
    "penstock topics), or shorten pipeline.retention; a larger buffer does not help"
)
NOT_STARTED_ADVICE = "it is tried again every 5 s: remove the cause; senders that connect to it are refused until then"
ALARM_ADVICE = {
    "failed": "the webhook or the command does not accept alarms: its error is in the daemon's log (alarms.)",
    "dropped": "deliveries take too long: check the webhook or the command, or lower alarms.timeout",
}
"""Advice by result of ``penstock_alarms_total``; other results are not a problem."""

# By the name of a count, or its stem; ``{origin}`` becomes the listener or topic.
REMEDIES = {
    "kernel_dropped": "see penstock doctor for a larger receive buffer, or spread the senders over more listeners",
    "invalid": "check what else sends to this port, and whether the listener's codec is the one of its senders",
    "incomplete.expired": "check the network for loss, or raise defrag.expire_time if fragments arrive later",
    "incomplete.evicted": "raise listener.{origin}.defrag.max_size, or find the sender of unfinished messages",
    "incomplete.replaced": "check the network for loss, or let the sender give each message an id of its own",
    "incomplete.crash": "see the timeline for what killed the receiver that held these fragments",
    "refused.oversize": "raise listener.{origin}.defrag.max_size (udp), or its max_line",
    "refused.damaged": "check the sender: its messages are truncated, damaged, or of another protocol",
    "refused.syntax": "check the sender: its messages are not JSON, or not the format of the path",
    "refused.kind": "check the sender: it requests updates or deletions, and messages can only be added",
    "refused.compressed": "turn off compression at the sender (rsyslog: ZipLevel)",
    "bad_checksum": "check the sender and the network: its fragments are damaged or mixed up",
    "line.overlong": "raise listener.{origin}.max_line",
    "line.evicted": "raise listener.{origin}.max_unfinished or .max_connections, or find who connects",
    "disk_full": FREE_DISK,
    "log_full": "raise log.max_bytes, or lower retain_bytes or stale_after of the largest topic (penstock topics)",
    "policy_drop": "raise buffer.term_length, or make the handler faster",
    "handler_failed": "see the handler's log for the cause; for the handler log, raise the topic's message_size_limit",
    "corrupt": "check the machine's disk and memory; penstock balance --rebuild compares the ledger with the files",
    "gap.expired_unread": "the pipeline lagged behind retention: raise stale_after or retain_bytes",
    "gap.deleted": "delete a topic only after all of it has landed",
    "gap.corrupt": "check the machine's disk; unreadable bytes are in the topic's folder quarantine",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: its level, its description, and what to do about it."""

    level: str
    problem: str
    advice: str = ""


def findings(daemon: Daemon, pipeline_runs: bool = False) -> list[Finding]:
    """Return the findings, worst first.

    While a pipeline runs, an unread topic is not a finding: its first batch may be in progress.
    """
    problems = [
        *_unbalanced(daemon),
        *not_started(daemon),
        *_unreadable(daemon),
        *_stopped(daemon),
        *_incomplete(daemon),
        *_disk(daemon),
        *_landing(daemon),
        *_alarms(daemon),
        *_losses(daemon),
        *_missed_by_handlers(daemon),
        *_topics(daemon),
    ]
    problems += [] if pipeline_runs else _unread(daemon)
    return sorted(problems, key=lambda finding: (BAD, WARN, NOTE).index(finding.level))


def _unbalanced(daemon: Daemon) -> Iterator[Finding]:
    if unaccounted := daemon.balance.get("unaccounted", 0):
        yield Finding(BAD, f"{counted(unaccounted, 'message')} unaccounted for", "penstock balance --rebuild")
    if warning := daemon.balance.get("clock"):
        problem, _, advice = warning.rpartition(": ")
        yield Finding(BAD, problem[:1].upper() + problem[1:], advice)


def not_started(daemon: Daemon) -> list[Finding]:
    """Return the processes that cannot start, with the reasons."""
    texts = [entry["text"] for entry in not_started_in(daemon.balance)]
    return [Finding(BAD, text[:1].upper() + text[1:], NOT_STARTED_ADVICE) for text in texts]


def _unreadable(daemon: Daemon) -> list[Finding]:
    return [Finding(BAD, line, PUT_BACK) for line in daemon.latest.table_facts.get("unreadable", ())[:MAX_NAMED_FILES]]


def _stopped(daemon: Daemon) -> Iterator[Finding]:
    for name, stopped_s in daemon.stopped_receivers.items():
        pid = daemon.stat["listeners"][name].get("pid", "")
        yield Finding(
            WARN,
            f"{name}: receiver stopped for {stopped_s:.0f} s, its messages wait in the kernel",
            f"continue it: kill -CONT {pid}, or end it: kill -KILL {pid} (it is restarted)",
        )
    if daemon.pipeline_stopped_s:
        yield Finding(
            WARN,
            f"pipeline stopped for {daemon.pipeline_stopped_s:.0f} s, its messages wait in the log",
            "penstock pipeline status",
        )
    for name, statistics in daemon.stat.get("listeners", {}).items():
        pids = {handler["name"]: handler.get("pid") or "" for handler in statistics.get("handlers", ())}
        for handler, silent_s in daemon.silent_forwarders(name).items():
            yield Finding(
                WARN,
                f"{name}: forwarder to {handler} silent for {silent_s:.0f} s, its messages wait in the log buffer",
                f"if it is stopped, continue it: kill -CONT {pids[handler]}; if it is not, see why {handler} hangs",
            )


def _incomplete(daemon: Daemon) -> Iterator[Finding]:
    """Yield a finding for each listener whose messages lack fragments, before they expire and are lost."""
    for listener in daemon.balance.get("listeners", ()):
        name, counts = listener["name"], listener["counts"]
        if (incomplete := counts.get(Name.OPEN, 0)) > 0 and (
            daemon.history.lowest(f"listener/{name}/{Name.OPEN}", INCOMPLETE_S) > 0
        ):
            arrived = counted(max(0, counts.get(Name.FRAGMENT_OPEN, 0)), "fragment")
            yield Finding(
                WARN,
                f"{name}: {counted(incomplete, 'message')} incomplete, only {arrived} arrived so far",
                f"what is incomplete after listener.{name}.defrag.expire_time is lost: check the network for loss",
            )


def _losses(daemon: Daemon) -> Iterator[Finding]:
    """Yield the losses of the last hour by origin and reason, with the same definition of a loss as the receipt's."""
    for origin, losses in losses_of(daemon.hour).items() if daemon.hour else ():
        for name, count in losses.items():
            problem, advice = f"{origin}: {exact(count)} lost within the hour: {meaning(name)}", remedy(name, origin)
            if name == Name.KERNEL_DROPPED:
                statistics = daemon.stat.get("listeners", {}).get(origin, {})
                drops = KernelDrops.gather(origin, statistics, daemon.events, (time.time() - HOUR_S) * 1000)
                problem, advice = f"{problem} ({drops.figures})", drops.advice
            yield Finding(WARN, problem, advice)


def _disk(daemon: Daemon) -> Iterator[Finding]:
    for folder, free in daemon.balance.get("low_disks", {}).items():
        yield Finding(WARN, f"the disk of {folder} is nearly full: {size(free)} free (alarms.disk_free)", FREE_DISK)
    for event in daemon.events:
        if event["kind"] == "disk" and not event["until"]:
            yield Finding(BAD, event["text"][:1].upper() + event["text"][1:], FREE_DISK)
        elif event["kind"] == "disk" and event["until"] >= (time.time() - HOUR_S) * 1000:
            yield Finding(WARN, f"within the hour {event['text']}", FREE_DISK)


def _landing(daemon: Daemon) -> Iterator[Finding]:
    if failure := daemon.balance.get("landing_failure"):
        yield Finding(BAD, failure["text"][:1].upper() + failure["text"][1:], failure["advice"])


def _alarms(daemon: Daemon) -> Iterator[Finding]:
    for result, advice in ALARM_ADVICE.items():
        if count := daemon.latest.alarms.get(result):
            yield Finding(WARN, f"{counted(count, 'alarm')} {result} since the daemon's start", advice)


def _missed_by_handlers(daemon: Daemon) -> Iterator[Finding]:
    """Yield a finding for each handler other than the log that missed messages."""
    for route, counts in receipt(daemon.hour).missed.items() if daemon.hour else ():
        for name, count in counts.items():
            advice = remedy(name, route.partition(" to ")[0])
            yield Finding(WARN, f"{route}: {exact(count)} within the hour: {meaning(name)}", advice)


def _unread(daemon: Daemon) -> list[Finding]:
    """Return one finding for all topics that no pipeline reads."""
    names = [topic["topic"] for topic in daemon.existing_topics() if not topic["read_by_pipeline"]]
    if not names:
        return []
    named, unnamed = ", ".join(names[:MAX_NAMED_TOPICS]), len(names) - MAX_NAMED_TOPICS
    topics = f"{named} and {counted(unnamed, 'more topic')}" if unnamed > 0 else named
    pronoun = "it" if len(names) == 1 else "them"
    return [Finding(NOTE, f"{topics}: no pipeline has read {pronoun} yet", "penstock pipeline run")]


def _topics(daemon: Daemon) -> Iterator[Finding]:
    grown = daemon.history.grown
    # Shares are of the last hour: a burst of last week must not warn forever.
    fates_of_hour = {topic["topic"]: topic["fates"] for topic in daemon.hour.get("topics", ())}
    for topic in daemon.existing_topics():
        name = topic["topic"]
        fates = fates_of_hour.get(name, {})
        landed = Counts(fates).rows()
        quarantined = {fate: count for fate, count in fates.items() if fate.startswith("quarantined.") and count}
        if landed and sum(quarantined.values()) > landed * QUARANTINE_WARNING_SHARE:
            worst = max(quarantined, key=lambda fate: quarantined[fate]).partition(".")[2].replace("_", " ")
            share = sum(quarantined.values()) / landed
            yield Finding(WARN, f"{name}: {share:.1%} of the last hour is in quarantine, most of it for {worst}")
        if (
            topic["read_by_pipeline"]
            and topic["pending"]
            # Without samples of the whole window a console that has just started would report every topic as stalled.
            and daemon.history.span >= STALLED_S
            and not any(grown(f"topic/{name}/{fate}", STALLED_S) for fate in topic["fates"])
        ):
            waiting = counted(topic["pending"], "message")
            yield Finding(
                WARN,
                f"{name}: {waiting} pending, nothing has landed for {lasted(STALLED_S)}",
                "is the pipeline running?",
            )


def remedy(name: str, origin: str) -> str:
    """Return the advice for losses named ``name`` at ``origin`` (a listener or topic); empty without any."""
    stem = name.partition(".")[0]
    return REMEDIES.get(name, REMEDIES.get(stem, "")).format(origin=origin)

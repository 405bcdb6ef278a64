"""What needs attention: findings from a balance, its statistics and what grew within the last hour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.console.cures import cure
from penstock.console.daemon_poll import Daemon
from penstock.console.wording import exact, lasted, meaning, short
from penstock.counts import Counts, Name
from penstock.ledger.receipt import losses_of, receipt

MANY_QUARANTINED = 0.01
STALLED = 120.0
MOST_NAMED = 5
"""Topics in one finding."""
BAD, WARN, NOTE = "bad", "warn", "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to look at: how bad, what, and what to do about it."""

    level: str
    what: str
    advice: str = ""


def findings(daemon: Daemon, lands: bool = False) -> list[Finding]:
    """The worst first; ``lands``: whether a pipeline runs, whose first batch may be under way."""
    found = [*_books(daemon), *_losses(daemon), *_others(daemon), *_topics(daemon)]
    found += [] if lands else _unread(daemon)
    return sorted(found, key=lambda one: (BAD, WARN, NOTE).index(one.level))


def _books(daemon: Daemon) -> Iterator[Finding]:
    if wrong := daemon.balance.get("unaccounted", 0):
        yield Finding(BAD, f"{exact(wrong)} messages are unaccounted for", "penstock balance --rebuild")
    if said := daemon.balance.get("clock"):
        what, _, advice = said.rpartition(": ")
        yield Finding(BAD, what[:1].upper() + what[1:], advice)


def _losses(daemon: Daemon) -> Iterator[Finding]:
    """What was lost within the hour, by place and reason: of the same losses as the receipt's."""
    for place, losses in losses_of(daemon.hour).items() if daemon.hour else ():
        for name, n in losses.items():
            beside = f" ({_buffer(daemon, place)})" if name == Name.KERNEL_DROPPED else ""
            yield Finding(WARN, f"{place}: {exact(n)} lost within the hour: {meaning(name)}{beside}", cure(name, place))


def _buffer(daemon: Daemon, listener: str) -> str:
    held = daemon.stat.get("listeners", {}).get(listener, {}).get("receive_buffer", 0)
    return f"the receive buffer holds {short(held)} bytes"


def _others(daemon: Daemon) -> Iterator[Finding]:
    """What handlers beside the log missed."""
    for way, counts in receipt(daemon.hour).missed.items() if daemon.hour else ():
        for name, n in counts.items():
            advice = cure(name, way.partition(" to ")[0])
            yield Finding(WARN, f"{way}: {exact(n)} within the hour: {meaning(name)}", advice)


def _unread(daemon: Daemon) -> list[Finding]:
    """Topics that no pipeline reads, all in one line: there may be thousands."""
    names = [topic["topic"] for topic in daemon.topics_there() if not topic["read_by_pipeline"]]
    if not names:
        return []
    shown, rest = ", ".join(names[:MOST_NAMED]), len(names) - MOST_NAMED
    told = f"{shown} and {exact(rest)} topics more" if rest > 0 else shown
    them = "it" if len(names) == 1 else "them"
    return [Finding(NOTE, f"{told}: no pipeline has read {them} yet", "penstock pipeline run")]


def _topics(daemon: Daemon) -> Iterator[Finding]:
    grown = daemon.history.grown
    lately = {topic["topic"]: topic["fates"] for topic in daemon.hour.get("topics", ())}
    for topic in daemon.topics_there():
        name = topic["topic"]
        fates = lately.get(name, {})
        landed = Counts(fates).rows()
        quarantined = {fate: n for fate, n in fates.items() if fate.startswith("quarantined.") and n}
        if landed and sum(quarantined.values()) > landed * MANY_QUARANTINED:
            worst = max(quarantined, key=lambda fate: quarantined[fate]).partition(".")[2].replace("_", " ")
            share = sum(quarantined.values()) / landed
            yield Finding(WARN, f"{name}: {share:.1%} of the last hour are in quarantine, most for {worst}")
        if (
            topic["read_by_pipeline"]
            and topic["pending"]
            and daemon.history.span >= STALLED
            and not any(grown(f"topic/{name}/{fate}", STALLED) for fate in topic["fates"])
        ):
            waiting = f"{exact(topic['pending'])} messages wait"
            yield Finding(
                WARN, f"{name}: {waiting}, nothing has landed for {lasted(STALLED)}", "is the pipeline running?"
            )

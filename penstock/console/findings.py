"""What needs attention: findings from a balance, its statistics and what grew within the last hour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.console.daemon_poll import Daemon
from penstock.console.wording import exact, lasted, meaning, short

STALE = 10.0
"""Seconds without an answer after which the numbers shown are old."""
MANY_QUARANTINED = 0.01
STALLED = 120.0
BAD, WARN, NOTE = "bad", "warn", "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to look at: how bad, what, and what to do about it."""

    level: str
    what: str
    advice: str = ""


def findings(daemon: Daemon) -> list[Finding]:
    """The worst first."""
    found = [*_daemon(daemon), *_books(daemon), *_listeners(daemon), *_routes(daemon), *_topics(daemon)]
    return sorted(found, key=lambda one: (BAD, WARN, NOTE).index(one.level))


def _daemon(daemon: Daemon) -> Iterator[Finding]:
    if daemon.error and daemon.age > STALE:
        yield Finding(BAD, f"The log daemon does not answer: {daemon.error}", "penstock serve, or penstock up")


def _books(daemon: Daemon) -> Iterator[Finding]:
    if lost := daemon.balance.get("unaccounted", 0):
        yield Finding(BAD, f"{exact(lost)} messages are unaccounted for", "penstock balance --rebuild")
    if said := daemon.balance.get("clock"):
        what, _, advice = said.rpartition(": ")
        yield Finding(BAD, what[:1].upper() + what[1:], advice)


def _listeners(daemon: Daemon) -> Iterator[Finding]:
    grown = daemon.history.grown
    for listener in daemon.balance.get("listeners", ()):
        name = listener["name"]
        if dropped := grown(f"listener/{name}/kernel_dropped"):
            buffer = daemon.stat.get("listeners", {}).get(name, {}).get("receive_buffer", 0)
            yield Finding(
                WARN,
                f"{name}: the kernel dropped {exact(dropped)} datagrams within the hour "
                f"(its receive buffer holds {short(buffer)} bytes)",
                "penstock doctor says how to make it larger",
            )
        for count, advice in (
            ("incomplete.expired", "fragments are lost on the network, or come later than defrag.expire_time"),
            ("refused.oversize", f"raise listener.{name}.defrag.max_size"),
            ("refused.compressed", "turn the compression of their sender off (rsyslog: ZipLevel)"),
            ("bad_checksum", "a sender's fragments are damaged or mixed up"),
            ("line.overlong", f"raise listener.{name}.max_line"),
            ("line.evicted", f"raise listener.{name}.max_unfinished or .max_connections, or see who connects"),
        ):
            if lost := grown(f"listener/{name}/{count}"):
                yield Finding(WARN, f"{name}: {meaning(count)}: {exact(lost)} within the hour", advice)


def _routes(daemon: Daemon) -> Iterator[Finding]:
    for route in daemon.balance.get("routes", ()):
        prefix = f"route/{route['source']}/{route['handler']}/"
        if dropped := daemon.history.grown(prefix + "policy_drop"):
            yield Finding(
                WARN,
                f"{route['source']}: handler {route['handler']} was too slow, {exact(dropped)} messages were dropped",
                "make buffer.term_length larger, or the handler faster",
            )
        if failed := daemon.history.grown(prefix + "handler_failed"):
            yield Finding(WARN, f"{route['source']}: handler {route['handler']} failed on {exact(failed)} messages")


def _topics(daemon: Daemon) -> Iterator[Finding]:
    grown = daemon.history.grown
    for topic in daemon.balance.get("topics", ()):
        name = topic["topic"]
        fates = {fate: grown(f"topic/{name}/{fate}") for fate in topic["fates"]}
        landed = sum(fates.values())
        quarantined = {fate: n for fate, n in fates.items() if fate.startswith("quarantined.") and n}
        if landed and sum(quarantined.values()) > landed * MANY_QUARANTINED:
            worst = max(quarantined, key=lambda fate: quarantined[fate]).partition(".")[2].replace("_", " ")
            share = sum(quarantined.values()) / landed
            yield Finding(WARN, f"{name}: {share:.1%} of the last hour are in quarantine, most for {worst}")
        if not topic["read_by_pipeline"]:
            yield Finding(NOTE, f"{name}: no pipeline has read it yet", "penstock pipeline run")
        elif (
            topic["pending"]
            and daemon.history.span >= STALLED
            and not any(grown(f"topic/{name}/{fate}", STALLED) for fate in topic["fates"])
        ):
            waiting = f"{exact(topic['pending'])} messages wait"
            yield Finding(
                WARN, f"{name}: {waiting}, nothing has landed for {lasted(STALLED)}", "is the pipeline running?"
            )

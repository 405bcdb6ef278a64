"""The receipt: the balance as one sum of disjoint terms, one fate per message.

Built from a balance in its JSON form, so that daemon, console and commands show the same numbers. A message counts
once: on its route to the log if its listener has one, otherwise on the listener's first other route. What further
handlers missed is reported next to the sum. Losses are defined by ``counts.lost`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.counts import EXPIRED_READ, GAP_DELETED, WITHOUT_MESSAGE, Counts, Name, lost, summed
from penstock.ledger.posts import DISK
from penstock.qualified_names import is_partition

LOG = "log"
UNWRITTEN = {"disk": "disk_full", "log": "log_full"}
"""Reasons of messages that the log missed because it could not be written, by what was full. They are not counts: an
event of the timeline attributes a part of the count MISSED_BY_LOG to them.
"""
MISSED_BY_LOG = f"{Name.POLICY_DROP}{LOG}"
ROUTE_LOSSES = (Name.POLICY_DROP, Name.HANDLER_FAILED, Name.CORRUPT)
PARTS = {
    "landed": "landed",
    "quarantined": "quarantined",
    "sent_back": "sent back from quarantine",
    "duplicate": "duplicates",
    "deleted": "deleted",
    "dropped": "dropped by the transformation",
    "kept": "in the log only",
    "handed_on": "handed on",
    "expired": "expired in the log",
    "lost": "lost",
    "unaccounted": "unaccounted for",
    "on_the_way": "on the way",
}
"""Terms of the sum in display order, with their labels."""
ALWAYS_SHOWN = ("lost", "on_the_way")
Document = dict[str, Any]
Losses = dict[str, Counts]
"""Losses by listener, API or topic."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A sum of fates.

    Invariant: ``parts`` add up to ``sent``, ``losses`` to the part ``lost``, and ``quarantined`` (by topic) to the part
    of that name. ``unreported`` names listeners whose senders do not report what they sent; ``network`` has the
    messages that reporting senders sent and that never arrived, by listener. ``missed`` has what handlers other than
    the log missed. ``refused_requests`` were refused as a whole, so the number of their messages is unknown and no term
    of the sum. ``skipped_bytes`` are the bytes of lines that were lost as overlong. ``without_message``
    counts offsets of Kafka that show no message to any reader, by fate; they are not a term of the sum either.
    ``not_started`` names processes that cannot start, so that their senders' messages may not arrive. ``unreadable`` is
    the number of faults by which landed rows cannot be read.
    """

    sent: int
    parts: dict[str, int]
    losses: Losses
    quarantined: Losses
    unreported: list[str] = field(default_factory=list)
    network: dict[str, int] = field(default_factory=dict)
    missed: Losses = field(default_factory=dict)
    refused_requests: int = 0
    skipped_bytes: int = 0
    without_message: Counts = field(default_factory=Counts)
    not_started: list[str] = field(default_factory=list)
    unreadable: int = 0

    @property
    def lost(self) -> int:
        return self.parts["lost"]

    def losses_by_reason(self) -> Counts:
        """Return the losses summed over all listeners and topics."""
        return summed(self.losses.values())

    def visible_parts(self) -> dict[str, int]:
        """Return the parts to display: all that are not 0, and some in any case."""
        always = ALWAYS_SHOWN if self.parts["kept"] else ("landed", *ALWAYS_SHOWN)
        return {name: count for name in PARTS if (count := self.parts[name]) or name in always}

    def document(self) -> dict[str, Any]:
        """Return the receipt as a JSON-ready mapping."""
        names = ("sent", "parts", "unreported", "network", "refused_requests", "skipped_bytes")
        plain = {name: getattr(self, name) for name in names}
        by_origin = {name: getattr(self, name) for name in ("losses", "quarantined", "missed")}
        return (
            plain
            | {"without_message": self.without_message.pruned()}
            | {
                name: {origin: counts.pruned() for origin, counts in losses.items()}
                for name, losses in by_origin.items()
            }
        )


def receipt(balance: Mapping[str, Any]) -> Receipt:
    """Return the receipt of a balance.

    Some facts are local, and those who know them add them to the balance: ``pipeline_starts`` (a pipeline runs and has
    reported nothing yet, so that the rows of the log are on the way), ``sent_back``, the resolved rows
    of the quarantine by topic and fate, and ``unreadable``, lines about files of the tables that cannot be read.
    """
    losses = losses_of(balance)
    quarantined, sent_back = _split_quarantine(balance)
    in_log_only = sum(_in_log_only(topic) for topic in balance["topics"])
    # A pipeline that fails before its first batch is restarted, and so does not run all the time.
    fails = "landing_failure" in balance and not any(topic["read_by_pipeline"] for topic in balance["topics"])
    starts = fails or bool(balance.get("pipeline_starts"))
    fates = summed(topic["fates"] for topic in balance["topics"])
    main_routes = _main_routes(balance)
    parts = {
        "landed": fates.total(Name.LANDED),
        "quarantined": sum(counts.total() for counts in quarantined.values()),
        "sent_back": sent_back,
        "duplicate": fates[Name.DUPLICATE],
        "deleted": fates.total(Name.DELETED) + fates[GAP_DELETED],
        "dropped": fates[Name.DROPPED],
        "kept": 0 if starts else in_log_only,
        "handed_on": _handed_on(balance, main_routes),
        "expired": fates[EXPIRED_READ],
        "lost": sum(counts.total() for counts in losses.values()),
        "unaccounted": balance["unaccounted"],
        "on_the_way": _on_the_way(balance, main_routes) + (in_log_only if starts else 0),
    }
    listeners = balance["listeners"]
    return Receipt(
        sum(parts.values()),
        parts,
        losses,
        {topic: counts for topic, counts in quarantined.items() if counts.total()},
        [listener["name"] for listener in listeners if listener.get("sent") is None],
        {
            listener["name"]: listener["network_lost"]
            for listener in listeners
            if listener.get("network_lost") is not None
        },
        _missed_by_other_handlers(balance, main_routes),
        sum(Counts(listener["counts"]).total(Name.REQUEST) for listener in listeners),
        sum(listener["counts"].get(Name.SKIPPED_BYTES, 0) for listener in listeners),
        Counts({name: count for name, count in fates.items() if count and name.startswith(WITHOUT_MESSAGE)}),
        [entry["process"] for entry in not_started_in(balance)],
        len(balance.get("unreadable", ())),
    )


def not_started_in(balance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the processes that cannot start, each with ``process``, ``since`` and ``text``.

    Balances of earlier versions, and of a log daemon without a supervisor, name none.
    """
    entries: list[dict[str, Any]] = balance.get("not_started", [])
    return entries


def _split_quarantine(balance: Mapping[str, Any]) -> tuple[Losses, int]:
    """Return the open rows of the quarantine by topic and fate, and the number of rows that were sent back."""
    quarantined, resolved = {}, 0
    for topic in balance["topics"]:
        sent_back = balance.get("sent_back", {}).get(topic["topic"], {})
        counts = Counts()
        for name, count in topic["fates"].items():
            if name.startswith(Name.QUARANTINED):
                # A row that was deleted after it was sent back is no longer counted as quarantined.
                of_fate = min(sent_back.get(name, 0), count)
                counts[name] = count - of_fate
                resolved += of_fate
        quarantined[topic["topic"]] = counts
    return quarantined, resolved


def losses_of(balance: Mapping[str, Any]) -> Losses:
    """Return the counts of lost messages by listener, API or topic, and by reason.

    ``unwritten`` of a balance (see ``unwritten_losses``) names the cause of messages that the log missed.
    """
    attributed = balance.get("unwritten", {}).get("lost", {})
    losses: Losses = {}

    def add(origin: str, counts: Mapping[str, int]) -> None:
        if counts:
            losses.setdefault(origin, Counts()).absorb(counts)

    for listener in balance["listeners"]:
        add(listener["name"], _with_causes(lost(listener["counts"]), attributed.get(listener["name"], {})))
    listener_names = {listener["name"] for listener in balance["listeners"]}
    for source, route in _main_routes(balance).items():
        # The losses of a listener's route to the log are part of the listener's own counts.
        if route["handler"] != LOG or source not in listener_names:
            add(source, _route_losses(route))
    for topic in balance["topics"]:
        add(topic["topic"], lost(topic["fates"]))
    return losses


def _with_causes(losses: Counts, attributed: Mapping[str, int]) -> Counts:
    losses = Counts(losses)
    for reason, count in attributed.items():
        # The events of a part of the time may have lost more than the minutes of that part.
        moved = min(count, losses[MISSED_BY_LOG])
        losses[MISSED_BY_LOG] -= moved
        losses[reason] += moved
    return Counts(losses.pruned())


def unwritten_losses(events: Iterable[Mapping[str, Any]], since_ms: float = 0, until_ms: float = math.inf) -> Document:
    """Return when the log could not be written, and what was lost by that, from the timeline; empty if it always could.

    ``since`` and ``until`` are milliseconds since the epoch, ``until`` is 0 if that lasts; ``lost`` is by listener and
    reason.
    """
    events = list(events)
    states = {event["id"]: event for event in events if event["kind"] == DISK and event["at"] < until_ms}
    states = {key: event for key, event in states.items() if not event["until"] or event["until"] >= since_ms}
    losses: Losses = {}
    for event in events:
        if (state := states.get(event["during"])) and (count := event["lost"].get(MISSED_BY_LOG)):
            losses.setdefault(event["place"], Counts())[UNWRITTEN[full_part(state)]] += count
    if not states:
        return {}
    newest = max(states.values(), key=lambda event: int(event["at"]))
    return {"since": newest["at"], "until": newest["until"], "full": full_part(newest), "lost": losses}


def count_of(reason: str) -> str:
    """Return the name of the count that a loss of the receipt is a part of."""
    return MISSED_BY_LOG if reason in UNWRITTEN.values() else reason


def full_part(event: Mapping[str, Any]) -> str:
    """Return what was full during an event of kind DISK: the ``disk``, or the ``log`` by its own limits."""
    if event.get("what") in UNWRITTEN:
        return str(event["what"])
    # Events of earlier versions have only the text of the refusal.
    return "log" if event["cause"].startswith(("log.max_bytes:", "no file descriptor is free:")) else "disk"


def _main_routes(balance: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return for each source the route on which its messages are counted."""
    main: dict[str, Mapping[str, Any]] = {}
    for route in balance["routes"]:
        if route["source"] not in main or route["handler"] == LOG:
            main[route["source"]] = route
    return main


def _route_losses(route: Mapping[str, Any]) -> Counts:
    names = {name: name if name == Name.CORRUPT else f"{name}{route['handler']}" for name in ROUTE_LOSSES}
    return lost({names[name]: route.get(name.rstrip("."), 0) for name in ROUTE_LOSSES})


def _in_log_only(topic: Mapping[str, Any]) -> int:
    """Return the rows of a topic that no pipeline reads."""
    return 0 if topic["read_by_pipeline"] else int(topic["logged"]) - Counts(topic["fates"]).rows()


def _handed_on(balance: Mapping[str, Any], main_routes: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the number of messages that handlers other than the log delivered.

    0 if the pipeline reads them from Kafka and counts them there.
    """
    if any(is_partition(topic["topic"]) for topic in balance["topics"]):
        return 0
    routed_elsewhere = (
        listener["counts"].get(f"{Name.NOT_ROUTED}{LOG}", 0)
        for listener in balance["listeners"]
        if main_routes.get(listener["name"], {"handler": LOG})["handler"] == LOG
    )
    delivered = (route["delivered"] for route in main_routes.values() if route["handler"] != LOG)
    return int(sum(routed_elsewhere) + sum(delivered))


def _on_the_way(balance: Mapping[str, Any], main_routes: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the number of messages that wait in log buffers, in topics, or for missing fragments."""
    buffered = sum(route.get("in_buffer", 0) for route in main_routes.values())
    pending = sum(topic["pending"] for topic in balance["topics"])
    incomplete = sum(max(0, listener["counts"].get(Name.OPEN, 0)) for listener in balance["listeners"])
    return int(buffered + pending + incomplete)


def _missed_by_other_handlers(balance: Mapping[str, Any], main_routes: Mapping[str, Mapping[str, Any]]) -> Losses:
    other_routes = [route for route in balance["routes"] if route is not main_routes[route["source"]]]
    missed = {f"{route['source']} to {route['handler']}": _route_losses(route) for route in other_routes}
    return {route: counts for route, counts in missed.items() if counts}

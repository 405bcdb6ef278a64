"""The receipt: what became of all that is known to have been sent, as one sum whose terms exclude each other.

It is computed from a balance (as JSON), so that the daemon, the console and the commands say the same numbers. What was
lost is what ``counts.lost`` calls so, by where and what. A message counts once, by the way to the log where its
listener has one, else by its first other handler; what further handlers missed is told beside the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.counts import READ_AND_GONE, Counts, Name, lost, summed

LOG = "log"
ROUTE_LOSSES = (Name.POLICY_DROP, Name.HANDLER_FAILED, Name.CORRUPT)
PARTS = {
    "landed": "landed",
    "quarantined": "quarantined",
    "duplicate": "duplicates",
    "deleted": "deleted",
    "dropped": "dropped by the transformation",
    "kept": "in the log only",
    "handed_on": "handed on",
    "expired": "read and expired",
    "lost": "lost",
    "unaccounted": "unaccounted for",
    "on_the_way": "on the way",
}
"""The terms of the sum in the order in which they are shown, in words."""
ALWAYS = ("lost", "on_the_way")
"""Terms that are told of where they are 0, too."""
Losses = dict[str, Counts]
"""By listener or topic."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """``parts`` add up to ``sent``; ``losses`` to the part ``lost``, ``quarantined`` by topic to that of its name.

    ``unreported``: listeners of whose senders nobody reports what they sent; ``network``: by listener what those who
    report sent and what never arrived. ``missed``: by listener and handler what handlers beside the log missed.
    """

    sent: int
    parts: dict[str, int]
    losses: Losses
    quarantined: Losses
    unreported: list[str] = field(default_factory=list)
    network: dict[str, int] = field(default_factory=dict)
    missed: Losses = field(default_factory=dict)

    @property
    def lost(self) -> int:
        return self.parts["lost"]

    def reasons(self) -> Counts:
        """What was lost by name alone."""
        return summed(self.losses.values())

    def shown(self) -> dict[str, int]:
        """The parts that are told of."""
        always = ALWAYS if self.parts["kept"] else ("landed", *ALWAYS)
        return {name: n for name in PARTS if (n := self.parts[name]) or name in always}

    def document(self) -> dict[str, Any]:
        """As JSON-ready mapping."""
        told = {name: getattr(self, name) for name in ("sent", "parts", "unreported", "network")}
        by_place = {name: getattr(self, name) for name in ("losses", "quarantined", "missed")}
        return told | {name: {at: counts.pruned() for at, counts in of.items()} for name, of in by_place.items()}


def receipt(balance: Mapping[str, Any]) -> Receipt:
    """The receipt of a balance."""
    losses = losses_of(balance)
    fates = summed(topic["fates"] for topic in balance["topics"])
    main = _main_routes(balance)
    parts = {
        "landed": fates.total(Name.LANDED),
        "quarantined": fates.total(Name.QUARANTINED),
        "duplicate": fates[Name.DUPLICATE],
        "deleted": fates.total(Name.DELETED),
        "dropped": fates[Name.DROPPED],
        "kept": sum(_kept(topic) for topic in balance["topics"]),
        "handed_on": _handed_on(balance, main),
        "expired": fates[READ_AND_GONE],
        "lost": sum(counts.total() for counts in losses.values()),
        "unaccounted": balance["unaccounted"],
        "on_the_way": _on_the_way(balance, main),
    }
    quarantined = {topic["topic"]: _of(topic["fates"], Name.QUARANTINED) for topic in balance["topics"]}
    listeners = balance["listeners"]
    return Receipt(
        sum(parts.values()),
        parts,
        losses,
        {topic: counts for topic, counts in quarantined.items() if counts},
        [one["name"] for one in listeners if one.get("sent") is None],
        {one["name"]: one["network_lost"] for one in listeners if one.get("network_lost") is not None},
        _missed(balance, main),
    )


def losses_of(balance: Mapping[str, Any]) -> Losses:
    """What was lost by where (a listener, an API, a topic) and by name."""
    found: Losses = {}

    def add(place: str, counts: Mapping[str, int]) -> None:
        if counts:
            found.setdefault(place, Counts()).absorb(counts)

    for listener in balance["listeners"]:
        add(listener["name"], lost(listener["counts"]))
    counted = {listener["name"] for listener in balance["listeners"]}
    for source, route in _main_routes(balance).items():
        if route["handler"] != LOG or source not in counted:  # those of listeners to the log stand in their counts
            add(source, _route_losses(route))
    for topic in balance["topics"]:
        add(topic["topic"], lost(topic["fates"]))
    return found


def _main_routes(balance: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """By source the way that its messages are counted on."""
    found: dict[str, Mapping[str, Any]] = {}
    for route in balance["routes"]:
        if route["source"] not in found or route["handler"] == LOG:
            found[route["source"]] = route
    return found


def _route_losses(route: Mapping[str, Any]) -> Counts:
    names = {name: name if name == Name.CORRUPT else f"{name}{route['handler']}" for name in ROUTE_LOSSES}
    return lost({names[name]: route.get(name.rstrip("."), 0) for name in ROUTE_LOSSES})


def _kept(topic: Mapping[str, Any]) -> int:
    """What a topic that no pipeline reads holds."""
    return 0 if topic["read_by_pipeline"] else int(topic["logged"]) - Counts(topic["fates"]).rows()


def _handed_on(balance: Mapping[str, Any], main: Mapping[str, Mapping[str, Any]]) -> int:
    """What went to other handlers than the log; not where the pipeline reads it from Kafka and counts it there."""
    if any("/" in topic["topic"] for topic in balance["topics"]):
        return 0
    elsewhere = (one["counts"].get(f"{Name.NOT_ROUTED}{LOG}", 0) for one in balance["listeners"] if _logs(one, main))
    delivered = (route["delivered"] for route in main.values() if route["handler"] != LOG)
    return int(sum(elsewhere) + sum(delivered))


def _logs(listener: Mapping[str, Any], main: Mapping[str, Mapping[str, Any]]) -> bool:
    return bool(main.get(listener["name"], {"handler": LOG})["handler"] == LOG)


def _on_the_way(balance: Mapping[str, Any], main: Mapping[str, Mapping[str, Any]]) -> int:
    """What waits in log buffers and topics, or for the rest of its fragments."""
    buffered = sum(route.get("in_buffer", 0) for route in main.values())
    pending = sum(topic["pending"] for topic in balance["topics"])
    opened = sum(max(0, listener["counts"].get(Name.OPEN, 0)) for listener in balance["listeners"])
    return int(buffered + pending + opened)


def _missed(balance: Mapping[str, Any], main: Mapping[str, Mapping[str, Any]]) -> Losses:
    others = [route for route in balance["routes"] if route is not main[route["source"]]]
    found = {f"{route['source']} to {route['handler']}": _route_losses(route) for route in others}
    return {way: counts for way, counts in found.items() if counts}


def _of(counts: Mapping[str, int], prefix: str) -> Counts:
    return Counts({name: n for name, n in counts.items() if name.startswith(prefix) and n})

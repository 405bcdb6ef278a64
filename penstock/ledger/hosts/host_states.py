"""The state of a host that relays to this Penstock, and its counts in the balance.

Invariant: ``accepted on the host = arrived + expired there + pending there`` for the present disk of a host; sums of
its former disks are added to them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.counts import BUCKET_SECONDS
from penstock.ledger.hosts.host_posts import (
    FURTHER,
    HostPost,
    ListenerReport,
    add_report,
    checked_text,
    parse_host_post,
)

ACCEPTED = "accepted"
NOTHING_CLOSED = dict.fromkeys((ACCEPTED, "expired", "lost_with_disk", "lost", "unaccounted"), 0)
"""Sums of the former disks of a listener without any."""


@dataclass(frozen=True, slots=True)
class HostState:
    """The stored state of a host: the newest post of each relay, and the sums of its former disks by listener.

    ``baseline`` has by listener the entries that arrived from former disks. ``claimable`` has the entries that another
    relay of the present disk may have sent before its first post: entries that were added to the accepted ones of the
    former disk, and entries that were taken from its pending ones. ``received_ms`` is the time of the newest post here.
    ``differs_since`` has by listener the time (ms) at which the host's counts first differed from what arrived.
    ``surplus`` has the entries that arrived and the host has not sent. ``received`` has by relay the time (ms) of its
    newest post here, 0 for a removed relay, and ``former_processes`` has the processes that posted before.
    """

    posts: Mapping[str, HostPost] = field(default_factory=dict)
    received_ms: int = 0
    baseline: Mapping[str, int] = field(default_factory=dict)
    closed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    former_disks: tuple[str, ...] = ()
    differs_since: Mapping[str, int] = field(default_factory=dict)
    surplus: Mapping[str, int] = field(default_factory=dict)
    claimable: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    received: Mapping[str, int] = field(default_factory=dict)
    former_processes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    new_disks_ms: tuple[int, ...] = ()

    @property
    def listeners(self) -> dict[str, ListenerReport]:
        """The counts of the present disk by listener, summed over the host's relays."""
        total: dict[str, ListenerReport] = {}
        for post in self.posts.values():
            for name, report in post.listeners.items():
                add_report(total, name, report)
        return total

    def report(self, row: str) -> ListenerReport:
        """Return the counts of the present disk for a row, summed over the host's relays."""
        reports = [post.listeners[row] for post in self.posts.values() if row in post.listeners]
        return functools.reduce(ListenerReport.plus, reports, ListenerReport())

    @property
    def has_further(self) -> bool:
        """Report whether listeners without a report of their own share the row FURTHER."""
        return FURTHER in self.closed or any(FURTHER in post.listeners for post in self.posts.values())

    @property
    def rows(self) -> set[str]:
        """The rows of the host in the balance: its listeners, and listeners of its former disks."""
        return {*self.listeners, FURTHER} if self.has_further else {*self.listeners, *self.closed}

    def row(self, listener: str) -> str:
        """Return the row that counts a listener."""
        is_named = not self.has_further or any(listener in post.listeners for post in self.posts.values())
        return listener if is_named else FURTHER

    def by_row(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return the sums of counts by listener for each row."""
        if not self.has_further:
            return dict(counts)
        named, sums = self.listeners, dict[str, int]()
        for listener, count in counts.items():
            row = listener if listener in named else FURTHER
            sums[row] = sums.get(row, 0) + count
        return sums

    def of_disk(self, arrived: Mapping[str, int]) -> dict[str, int]:
        """Return the arrived entries by listener, less the entries of former disks."""
        return {name: arrived.get(name, 0) - self.baseline.get(name, 0) for name in {*arrived, *self.baseline}}

    def document(self) -> dict[str, Any]:
        """Return the state as a JSON-ready mapping."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> HostState:
        """Return the state in a document. Raises BadPost, AttributeError, KeyError, TypeError and ValueError."""
        posts = {checked_text(relay): parse_host_post(post) for relay, post in document["posts"].items()}
        maps = {name: document[name] for name in ("baseline", "closed", "differs_since", "surplus")}
        maps["claimable"] = document.get("claimable", {})
        for name in {name for names in maps.values() for name in names}:
            checked_text(name)
        received_ms = document["received_ms"]
        return cls(
            posts,
            received_ms,
            former_disks=tuple(document["former_disks"]),
            received=document.get("received") or dict.fromkeys(posts, received_ms),
            former_processes={relay: tuple(names) for relay, names in document.get("former_processes", {}).items()},
            new_disks_ms=tuple(document.get("new_disks_ms", ())),
            **maps,
        )


@dataclass(frozen=True, slots=True)
class OnHost:
    """The counts of a listener on its host: ``accepted = arrived + expired + pending + lost_with_disk + unaccounted``.

    ``unaccounted`` is not 0 if the host's books differ from what arrived, since the minute ``differs_since`` (seconds
    since the epoch). ``reported_at`` is the time of the last post, ``clock_offset_s`` the host's clock minus this one.
    """

    accepted: int
    expired: int
    pending: int
    lost_with_disk: int
    unaccounted: int
    lost: int
    sent: int | None
    lag_s: float
    reported_at: float
    clock_offset_s: float
    version: str
    differs_since: int


def update_report(report: ListenerReport, arrived: int, surplus: int) -> tuple[int, int]:
    """Return the accepted and the pending entries as of now: some arrived since the report, which is the last one."""
    since = max(arrived - surplus - report.forwarded, 0)
    return report.accepted + max(since - report.pending, 0), max(report.pending - since, 0)


def on_host(state: HostState, row: str, arrived: int) -> OnHost:
    """Return the counts of a row of a host, of which ``arrived`` entries are here."""
    report = state.report(row)
    closed, baseline = {**NOTHING_CLOSED, **state.closed.get(row, {})}, state.baseline.get(row, 0)
    if row == FURTHER and state.has_further:
        baseline = state.by_row(state.baseline).get(row, 0)
        closed = {key: state.by_row({n: sums[key] for n, sums in state.closed.items()}).get(row, 0) for key in closed}
    of_disk = arrived - baseline
    accepted, pending = update_report(report, of_disk, state.surplus.get(row, 0))
    unaccounted = accepted - of_disk - report.expired - pending
    if row not in state.differs_since:
        # The book has an append a moment after its acknowledgement, so until the next post this is not a difference.
        pending, unaccounted = pending + unaccounted, 0
    posts = [post for post in state.posts.values() if row in post.listeners] or list(state.posts.values())
    posts = [post for post in posts if state.received.get(post.relay)] or posts
    # Clocks of the host may have been set, so the order of reception counts.
    newest = max(posts, key=lambda post: state.received.get(post.relay, 0))
    received_ms = state.received.get(newest.relay) or state.received_ms
    return OnHost(
        accepted=accepted + closed[ACCEPTED],
        expired=report.expired + closed["expired"],
        pending=pending,
        lost_with_disk=closed["lost_with_disk"],
        unaccounted=unaccounted + closed["unaccounted"],
        lost=report.lost + closed["lost"],
        sent=report.sent,
        lag_s=max(post.lag_ms for post in posts) / 1000,
        reported_at=state.received_ms / 1000,
        clock_offset_s=round((newest.time_ms - received_ms) / 1000, 1),
        version=newest.software,
        differs_since=state.differs_since.get(row, 0) // (1000 * BUCKET_SECONDS) * BUCKET_SECONDS,
    )

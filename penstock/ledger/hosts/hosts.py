"""The hosts that relay to this Penstock: what each accepted, sent and still has, compared with what arrived.

A relay posts its host's absolute counts every few seconds, so only the newest post of a host is stored: one small file
for each host, replaced durably (``host_states``). The counts of a disk that was lost are closed when its successor
registers: what was pending on it can never arrive, and counts as lost with the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.ledger.hosts.host_files import HOUR_MS, MAX_FORMER_DISKS, HostFiles, refuse_former_disk, with_new_disk
from penstock.ledger.hosts.host_posts import FURTHER, HostPost, ListenerReport, parse_host_post
from penstock.ledger.hosts.host_states import ACCEPTED, NOTHING_CLOSED, HostState, update_report
from penstock.ledger.posts import BadPost

FOLDER = "hosts"
"""Folder in the data directory, with one file for each host."""
MAX_RELAYS = 16
"""Limit: relays of one host to this Penstock."""
MAX_FORMER_PROCESSES = 8
"""Limit: former processes of a relay whose late posts are recognized."""
RELAY_SILENCE_MS = HOUR_MS
"""Time after which a relay that does not post, while others of its host do, counts as removed."""
MAX_CLOSED = 400
"""Limit: listeners of a host's former disks with sums of their own; further ones share a row."""


class HostRegister:
    """The registered hosts. Threads: each method holds the lock. ``arrived`` returns a host's entries by listener.

    Owned by the log daemon. Crash: a post is stored before it is answered.
    """

    def __init__(self, folder: Path, arrived: Callable[[str], Mapping[str, int]], now: Callable[[], float]) -> None:
        self._arrived, self._now = arrived, now
        self._lock = threading.Lock()
        self._files = HostFiles(folder, HostState.from_document)

    def post(self, document: Any) -> bool:
        """Store a host's post; report whether it was new. Raises BadPost and OSError."""
        post = parse_host_post(document)
        with self._lock:
            state = self._files.state_for_post(post.host) or HostState()
            refuse_former_disk(post.host, post.disk, state.former_disks, FOLDER)
            previous = state.posts.get(post.relay)
            if previous and previous.process == post.process and previous.version >= post.version:
                return False
            if post.process in state.former_processes.get(post.relay, ()):
                return False
            if previous is None and len(state.posts) >= MAX_RELAYS:
                raise BadPost(f"{post.host} has {MAX_RELAYS} relays already")
            self._files.store(post.host, self._enter(state, post))
            return True

    def _enter(self, state: HostState, post: HostPost) -> HostState:
        disks = {present.disk for present in state.posts.values()}
        arrived, time_ms = self._arrived(post.host), int(self._now() * 1000)
        if disks and post.disk not in disks:
            new_disks = with_new_disk(post.host, state.new_disks_ms, time_ms)
            state = _close_disk(state, _arrived_before(post, arrived, state.baseline))
            state = replace(state, new_disks_ms=new_disks)
        elif not disks:
            state = _enter_unregistered(post, _arrived_before(post, arrived, {}))
        if post.relay not in state.posts:
            state = _claim_for_relay(state, post, arrived)
            state = _credit_former_name(state, post, arrived, self._arrived_under_former_names(post))
        entered = _enter_post(state, post, time_ms)
        silent = [
            relay
            for relay, received_ms in state.received.items()
            if relay != post.relay and (not received_ms or state.received_ms - received_ms >= RELAY_SILENCE_MS)
        ]
        is_single = len(silent) == len(entered.posts) - 1
        if is_single:
            entered = _retire(entered, [relay for relay in silent if state.received[relay]], arrived)
        surplus: dict[str, int] = {}
        since: dict[str, int] = {}
        previous = state.listeners
        arrived_by_row = entered.by_row(entered.of_disk(arrived))
        for name, report in entered.listeners.items():
            of_disk = arrived_by_row.get(name, 0)
            # Another relay of the host may have appended since its last post, so they are compared if only one posts.
            extra = of_disk - report.forwarded - report.in_doubt if is_single else 0
            # The book has an append a moment after its acknowledgement, so the post before is compared.
            missing = min(previous[name].forwarded, report.forwarded) - of_disk if name in previous else 0
            if extra > 0:
                surplus[name] = extra
            counted = report.forwarded + report.expired + report.pending
            if extra > 0 or missing > 0 or report.accepted != counted:
                since[name] = state.differs_since.get(name) or state.received_ms or time_ms
        return replace(entered, differs_since=since, surplus=surplus)

    def _arrived_under_former_names(self, post: HostPost) -> dict[str, int]:
        """Return the entries by listener that the disk of a post has sent under other names of its host."""
        total: dict[str, int] = {}
        for host, state in self._files.states.items():
            if host != post.host and any(present.disk == post.disk for present in state.posts.values()):
                for name, count in state.of_disk(self._arrived(host)).items():
                    total[name] = total.get(name, 0) + count
        return total

    @property
    def states(self) -> Mapping[str, HostState]:
        """The current states by host."""
        with self._lock:
            return dict(self._files.states)


def _enter_post(state: HostState, post: HostPost, time_ms: int) -> HostState:
    """Return the state with the newest post of a relay."""
    processes, previous = dict(state.former_processes), state.posts.get(post.relay)
    if previous is not None and previous.process != post.process:
        former = (*processes.get(post.relay, ()), previous.process)
        processes[post.relay] = former[-MAX_FORMER_PROCESSES:]
    return replace(
        state,
        posts={**state.posts, post.relay: post},
        received_ms=time_ms,
        received={**state.received, post.relay: time_ms},
        former_processes=processes,
    )


def _retire(state: HostState, relays: Iterable[str], arrived: Mapping[str, int]) -> HostState:
    """Return the state with relays that were removed: they have sent what arrived since their last posts."""
    posts = dict(state.posts)
    for relay in relays:
        reports = {name: replace(report, in_doubt=0) for name, report in posts[relay].listeners.items()}
        settled = replace(state, posts={**posts, relay: replace(posts[relay], listeners=reports)})
        of_disk = settled.by_row(settled.of_disk(arrived))
        for name, report in reports.items():
            total = settled.report(name)
            sent = min(max(of_disk.get(name, 0) - total.forwarded - total.in_doubt, 0), report.pending)
            reports[name] = replace(report, forwarded=report.forwarded + sent, pending=report.pending - sent)
        posts[relay] = replace(posts[relay], listeners=reports)
    return replace(state, posts=posts, received={**state.received, **dict.fromkeys(relays, 0)})


def _arrived_before(post: HostPost, arrived: Mapping[str, int], baseline: Mapping[str, int]) -> dict[str, int]:
    """Return the arrived entries by listener, less what the disk of ``post``, its first one, has sent."""
    further = post.listeners.get(FURTHER, ListenerReport()).forwarded
    before: dict[str, int] = {}
    for name, count in arrived.items():
        since = max(count - max(baseline.get(name, 0), 0), 0)
        if name in post.listeners:
            sent = min(post.listeners[name].forwarded, since)
        else:
            sent = min(further, since)
            further -= sent
        before[name] = count - sent
    return before


def _enter_unregistered(post: HostPost, before: Mapping[str, int]) -> HostState:
    """Return the state of a host that registers; what arrived ``before``, from a former disk, was accepted there."""
    further = post.listeners.get(FURTHER, ListenerReport())
    baseline = {name: rest for name, rest in before.items() if rest > post.listeners.get(name, further).in_doubt}
    closed = {name: {**NOTHING_CLOSED, ACCEPTED: rest} for name, rest in baseline.items()}
    claimable = {name: (rest, 0) for name, rest in baseline.items()}
    return _fold_closed(HostState(baseline=baseline, closed=closed, claimable=claimable))


def _close_disk(state: HostState, before: Mapping[str, int]) -> HostState:
    """Return the state of a host with a new disk: what was pending on the former one is lost."""
    closed = {name: dict(sums) for name, sums in state.closed.items()}
    of_disk, listeners = state.of_disk(before), state.listeners
    arrived_by_row, claimable = state.by_row(of_disk), dict[str, tuple[int, int]]()
    # Also entries of listeners that the last post does not have arrived from the former disk.
    for name in {*listeners, *arrived_by_row}:
        report, arrived = listeners.get(name, ListenerReport()), arrived_by_row.get(name, 0)
        accepted, pending = update_report(report, arrived, state.surplus.get(name, 0))
        unaccounted = accepted - arrived - report.expired - pending
        _add_closed(closed, name, (accepted, report.expired, pending, report.lost, unaccounted))
        if arrived > report.forwarded:
            claimable[name] = (accepted - report.accepted, report.pending - pending)
    for name, arrived in of_disk.items():
        if (row := state.row(name)) != name:
            # The new disk may name the listener, so what arrived stays with it.
            _add_closed(closed, row, (-arrived, 0, 0, 0, 0))
            _add_closed(closed, name, (arrived, 0, 0, 0, 0))
    closed = {name: sums for name, sums in closed.items() if any(sums.values())}
    baseline = {name: count for name, count in before.items() if count}
    disks = (*state.former_disks, *{post.disk for post in state.posts.values()})[-MAX_FORMER_DISKS:]
    return _fold_closed(HostState(baseline=baseline, closed=closed, former_disks=disks, claimable=claimable))


def _claim_for_relay(state: HostState, post: HostPost, arrived: Mapping[str, int]) -> HostState:
    """Return the state without the entries of former disks that ``post``, the first one of a relay, says it sent."""
    closed, baseline = {name: dict(sums) for name, sums in state.closed.items()}, dict(state.baseline)
    entered, claimable = replace(state, posts={**state.posts, post.relay: post}), dict(state.claimable)
    of_disk = entered.by_row(entered.of_disk(arrived))
    missing = {
        row: entered.report(row).forwarded + report.in_doubt - of_disk.get(row, 0)
        for row, report in post.listeners.items()
    }
    for name, (accepted, pending) in state.claimable.items():
        row = entered.row(name)
        claimed = min(max(missing.get(row, 0), 0), accepted + pending)
        if not claimed:
            continue
        missing[row] -= claimed
        of_accepted = min(claimed, accepted)
        _add_closed(closed, name, (-of_accepted, 0, claimed - of_accepted, 0, 0))
        baseline[name] = baseline.get(name, 0) - claimed
        claimable[name] = (accepted - of_accepted, pending - claimed + of_accepted)
    return replace(state, closed=closed, baseline=baseline, claimable=claimable)


def _credit_former_name(
    state: HostState, post: HostPost, arrived: Mapping[str, int], elsewhere: Mapping[str, int]
) -> HostState:
    """Return the state less what the host sent ``elsewhere``: under the name that it had before.

    Only entries that arrived there are credited, so a loss still shows as a difference.
    """
    if not elsewhere:
        return state
    closed, baseline = {name: dict(sums) for name, sums in state.closed.items()}, dict(state.baseline)
    entered = replace(state, posts={**state.posts, post.relay: post})
    of_disk, credits_left = entered.by_row(entered.of_disk(arrived)), entered.by_row(elsewhere)
    for name, report in entered.listeners.items():
        # A baseline below 0 is what another relay of the host was credited with.
        limit = credits_left.get(name, 0) + min(baseline.get(name, 0), 0)
        credit = min(report.forwarded - of_disk.get(name, 0), limit)
        if credit > 0:
            _add_closed(closed, name, (-credit, 0, 0, 0, 0))
            baseline[name] = baseline.get(name, 0) - credit
    return replace(state, closed=closed, baseline=baseline)


def _add_closed(closed: dict[str, dict[str, int]], name: str, counts: Iterable[int]) -> None:
    sums = closed.setdefault(name, dict(NOTHING_CLOSED))
    for key, count in zip(NOTHING_CLOSED, counts, strict=True):
        sums[key] += count


def _fold_closed(state: HostState) -> HostState:
    """Return the state with at most MAX_CLOSED listeners of former disks: the rest is added to FURTHER."""
    names = {*state.closed, *state.baseline} - {FURTHER}
    if len(names) <= MAX_CLOSED:
        return state
    # Listeners without an arrived entry first: the others may be named again by the host.
    folded = sorted(names, key=lambda name: (not state.baseline.get(name), name))[MAX_CLOSED:]
    closed = {name: dict(sums) for name, sums in state.closed.items()}
    baseline = dict(state.baseline)
    for name in folded:
        _add_closed(closed, FURTHER, closed.pop(name, NOTHING_CLOSED).values())
        baseline[FURTHER] = baseline.get(FURTHER, 0) + baseline.pop(name, 0)
    return replace(state, closed=closed, baseline=baseline)

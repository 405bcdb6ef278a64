"""The recorder of the timeline: stopped receivers and forwarders, growing losses, a full disk, a wrong clock,
what retention dropped.

Other processes post what only they know: the supervisor posts restarts and reloads, ``penstock up`` restarts of
the pipeline. A loss while a process is restarted or stopped becomes a part of that event. Each version of a growing
event is a post, so a growing event is posted at increasing intervals and shown from memory in between. Crash: a daemon
that dies in between loses nothing; the next one finds the difference between the losses in the book and the losses
that events report.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.counts import Counts, Name
from penstock.errors import PenstockError
from penstock.handover.heartbeat import Pulse
from penstock.handover.landing_failure import LandingFailure
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import DISK, LANDING, EventPost
from penstock.ledger.receipt import MISSED_BY_LOG
from penstock.log import Log, Swept

CHECK_INTERVAL_S = 1.0
"""Interval between checks of the books."""
CONFIRM_DELAY_S = 0.2
"""Delay before a new loss is confirmed. A count is in the book and still in the log buffer until the reader moves on,
which takes up to a tenth of a second on a busy machine.
"""
MAX_CPU_SHARE = 0.05
"""Limit for the recorder's CPU time, as a share of one core."""
RESTART_GRACE_MS = 5_000
"""Time after a restart or a full disk in which a loss still belongs to it: the counts arrive late."""
LOSS_PAUSE_MS = 60_000
"""Time without growth after which further losses start a new event."""
MAX_EVENT_MS = 3_600_000
"""Limit for the duration of one event of losses or retention."""
DISK_RECOVERY_S = 10.0
"""Time without a refused write after which the disk counts as usable again."""
MAX_POST_DELAY_S = 60.0
MAX_NAMED_TOPICS = 3
"""Limit for the topics that the text of a retention event names."""
EXPIRED_READ = "expired_read"
LOST_BY_ABSENCE = (
    Name.KERNEL_DROPPED,
    f"{Name.INCOMPLETE}crash",
    f"{Name.INVALID}slot",
    Name.POLICY_DROP,
    Name.CORRUPT,
)
"""Losses that a stopped process causes; other losses in that time have other causes."""
STOPPED = "stopped"
"""Kind of the event of a receiver or forwarder that was stopped or hung."""
FORWARDER = "forwarder "
"""Prefix of the names of forwarders' processes, before listener and handler."""
ALL_LISTENERS = "*"
"""Place of a restart of the log daemon, which may cause losses of every listener."""
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class _Draft:
    """A growing event. ``due`` is the time of its next post; ``noticed`` the time when it was noticed, None if an
    earlier daemon noticed it. Both are on the monotonic clock.
    """

    event: EventPost
    noticed: float | None = None
    written: int = -1
    due: float = 0.0
    delay: float = CHECK_INTERVAL_S

    @property
    def has_unposted_change(self) -> bool:
        return self.written < self.event.version

    def change(self, **fields: object) -> None:
        version = self.event.version + (not self.has_unposted_change)
        self.event = replace(self.event, version=version, **fields)  # type: ignore[arg-type]


class EventRecorder:
    """The thread that turns changes of ``ledger`` and ``log`` into events. Owned by the log daemon.

    Events are dated by the clock that the log expects, so that a wrong wall clock neither reorders events nor joins
    losses that are years apart.
    """

    def __init__(
        self,
        ledger: Ledger,
        log: Log,
        pulses: Callable[[], Mapping[str, Pulse]] = dict,
        landing_failure: Callable[[], LandingFailure | None] = lambda: None,
    ) -> None:
        """Create the recorder; ``pulses`` returns what heartbeats show, by process: ``receiver NAME`` or
        ``forwarder NAME HANDLER``, with the listener's name, or ``pipeline``; ``landing_failure`` why nothing lands.
        """
        self._ledger, self._log, self._pulses, self._landing_failure = ledger, log, pulses, landing_failure
        self._stopped: dict[str, _Draft] = {}
        self._paused_at_s: dict[str, float] = {}
        self._drafts: dict[str, _Draft] = {}
        self._checks = 0
        self._swept: list[Swept] = []
        self._dropped_topics: dict[str, tuple[int, bool]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        log.observe_sweeps(self._collect_sweeps)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Post everything and return. Call before the log is closed."""
        self._stop.set()
        self._thread.join()
        # Threads: the recorder's thread has ended, so the caller's thread may check.
        self.check(last=True)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            begin = time.thread_time()
            try:
                self.check()
            except Exception:
                # The thread outlives any error: the next check finds the same losses again.
                _LOGGER.exception("timeline: events could not be recorded")
            # Limit: a check of a large book takes longer, so the pause grows with it.
            pause = max(CHECK_INTERVAL_S, (time.thread_time() - begin) / MAX_CPU_SHARE)

    def check(self, last: bool = False) -> None:
        """Record new events; with ``last``, post all of them."""
        now = int(self._log.clock.expected() * 1000)
        # Order: before the losses, so that they find the pause or the full disk that caused them.
        self._record_stopped_processes(now)
        shortage = self._log.recent_space_error(DISK_RECOVERY_S)
        self._record_state(DISK, str(shortage or ""), now, shortage.full if shortage else "")
        for origin, grown in self._unreported_losses():
            self._record_loss(origin, grown, now)
        failure = self._landing_failure()
        self._record_state(LANDING, failure.cause if failure else "", now)
        state = self._log.clock.state()
        self._record_state("clock", "" if state.right else state.text().partition(":")[0], now)
        self._record_retention(now)
        self._record_missing_entries(now)
        self._post_due(now, last)
        self._checks += 1

    def _record_missing_entries(self, now: int) -> None:
        """Record that topics lack entries that were counted: the balance has no other sign of them."""
        for topic, (end, counted) in self._ledger.missing.items():
            event_id = f"missing {topic} {counted}"
            if self._ledger.event(event_id) is None:
                state = f"ends at {end:,}" if end else "is gone"
                cause = (
                    f"topic {topic} {state}: {counted - end:,} entries that the balance had are missing, because files "
                    "were removed or come from an older copy"
                )
                _LOGGER.error("ledger: %s", cause)
                self._draft(EventPost(event_id, 0, "foreign", now, now, what=f"topic {topic}", cause=cause))
        self._ledger.missing = {}

    def _record_stopped_processes(self, now: int) -> None:
        if not self._checks:
            open_events = [event for event in self._ledger.events() if event.kind == STOPPED and not event.until]
            self._stopped = {event.what: self._draft(event) for event in open_events}
        pulses = self._pulses()
        for process in {**pulses, **self._stopped}:
            pulse, draft = pulses.get(process, Pulse()), self._stopped.get(process)
            has_paused = pulse.paused_at_s != self._paused_at_s.get(process, pulse.paused_at_s)
            self._paused_at_s[process] = pulse.paused_at_s
            if pulse.is_stopped and draft is None:
                self._stopped[process] = self._stopped_draft(process, now - round(pulse.silent_s * 1000))
            elif draft and not pulse.is_stopped:
                # A process that was killed, or a listener that was removed, has not reported how long it paused.
                pause_ms = round(pulse.pause_s * 1000) if has_paused else max(now - draft.event.at, 1)
                draft.change(until=draft.event.at + pause_ms)
                draft.due = 0.0  # it has ended: posted by this check
                del self._stopped[process]
            elif has_paused and pulse.pause_s:
                # The pause began and ended between two checks.
                ended_at = now - round(pulse.silent_s * 1000)
                draft = self._stopped_draft(process, ended_at - round(pulse.pause_s * 1000))
                draft.change(until=ended_at)

    def _stopped_draft(self, process: str, at: int) -> _Draft:
        # The pipeline has no listener, and causes no losses: messages wait in the log.
        listener = process.partition(" ")[2].partition(" ")[0]
        return self._draft(EventPost(f"{STOPPED} {process} {at}", 0, STOPPED, at, what=process, place=listener))

    def _unreported_losses(self) -> Iterator[tuple[str, Counts]]:
        """Yield the losses that no event reports, by place."""
        reported = {origin: Counts(counts) for origin, counts in self._ledger.event_losses().items()}
        for draft in self._drafts.values():
            reported.setdefault(draft.event.place, Counts()).absorb(self._unwritten(draft))
        if not (growth := self._losses_beyond(reported)):
            return
        # Only growth that two checks agree on is reported, because a reported loss cannot be taken back: see
        # CONFIRM_DELAY_S.
        self._stop.wait(CONFIRM_DELAY_S)
        confirmed = self._losses_beyond(reported)
        for origin, counts in growth.items():
            if common := counts & confirmed.get(origin, Counts()):
                yield origin, Counts(common)

    def _losses_beyond(self, reported: Mapping[str, Counts]) -> dict[str, Counts]:
        unreported = {}
        for origin, counts in self._ledger.losses().items():
            growth = Counts({name: n - reported.get(origin, Counts())[name] for name, n in counts.items()})
            if positive := Counts({name: n for name, n in growth.items() if n > 0}):
                unreported[origin] = positive
        return unreported

    def _unwritten(self, draft: _Draft) -> Counts:
        growth = Counts(draft.event.losses)
        posted = self._ledger.event(draft.event.id)
        growth.subtract(posted.losses if posted else {})
        return growth

    def _record_loss(self, origin: str, growth: Counts, now: int) -> None:
        if growth[MISSED_BY_LOG] and (draft := self._draft_of_full_disk(origin, now)):
            _add(draft, Counts({MISSED_BY_LOG: growth.pop(MISSED_BY_LOG)}), now)
        for name in [name for name in growth if name.startswith(LOST_BY_ABSENCE)]:
            handler = name.removeprefix(Name.POLICY_DROP) if name.startswith(Name.POLICY_DROP) else ""
            if draft := self._draft_of_absence(origin, now, f"{FORWARDER}{origin} {handler}"):
                _add(draft, Counts({name: growth.pop(name)}), now)
        if growth:
            _add(self._draft_of_loss(origin, now), growth, now)

    def _draft_of_absence(self, origin: str, now: int, forwarder: str) -> _Draft | None:
        """Return the losses of a restart or pause that is in progress or has just ended.

        A pause of any forwarder but ``forwarder`` loses nothing here.
        """
        # The drafts are newer than the stored events, and a pause may have been noticed by this check.
        for event in reversed([*self._ledger.events(), *(draft.event for draft in self._drafts.values())]):
            matches = event.kind in ("restart", STOPPED) and event.place in (origin, ALL_LISTENERS)
            matches = matches and (not event.what.startswith(FORWARDER) or event.what == forwarder)
            # The supervisor dates a restart by its own clock, so ``until`` may be later than ``now``.
            if matches and (not event.until or abs(now - event.until) < RESTART_GRACE_MS):
                return self._draft_of_cause(event, origin, now)
        return None

    def _draft_of_full_disk(self, origin: str, now: int) -> _Draft | None:
        """Return the losses of a time in which the log cannot be written, or could not until a moment ago.

        None for a listener whose own messages were not refused in that time: it lost them for another reason.
        """
        for event in reversed([*self._ledger.events(), *(draft.event for draft in self._drafts.values())]):
            # Order: the counts of dropped messages are entered with the first frame that the log stores again.
            is_now = event.kind == DISK and (not event.until or abs(now - event.until) < RESTART_GRACE_MS)
            if is_now and self._log.was_refused(origin, abs(now - event.at) / 1000 + DISK_RECOVERY_S):
                return self._draft_of_cause(event, origin, now)
        return None

    def _draft_of_cause(self, event: EventPost, origin: str, now: int) -> _Draft:
        loss = EventPost(f"{event.id} {origin}", 0, "loss", event.at, now, place=origin, during=event.id)
        return self._draft(self._ledger.event(loss.id) or loss)

    def _draft_of_loss(self, origin: str, now: int) -> _Draft:
        for draft in self._drafts.values():
            event = draft.event
            is_loss = event.kind == "loss" and event.place == origin and not event.during
            if is_loss and abs(now - event.until) < LOSS_PAUSE_MS and abs(now - event.at) < MAX_EVENT_MS:
                return draft
        # The first check finds losses of an earlier daemon. When they happened is unknown.
        cause = "" if self._checks else "counted when the log daemon started"
        return self._draft(EventPost(f"loss {origin} {now}", 0, "loss", now, now, place=origin, cause=cause))

    def _draft(self, event: EventPost) -> _Draft:
        if event.id not in self._drafts:
            posted = self._ledger.event(event.id)
            self._drafts[event.id] = _Draft(event, written=posted.version if posted else -1)
        return self._drafts[event.id]

    def _record_state(self, kind: str, cause: str, now: int, what: str = "") -> None:
        """Open, continue or (with an empty ``cause``) close the event of a lasting state."""
        open_draft = next((d for d in self._drafts.values() if d.event.kind == kind and not d.event.until), None)
        # Only the first check may find an event that a predecessor left open: later ones are drafts of this daemon.
        if not self._checks and (left_open := self._open_events_of_predecessors(kind)):
            open_draft = self._draft(left_open[-1])
            for event, successor in itertools.pairwise(left_open):
                # Crash: a daemon that could not post the end of an event on a full disk leaves it open.
                self._draft(event).change(until=max(successor.at, event.at + 1))
        if cause and open_draft is None:
            self._draft(
                EventPost(f"{kind} {now}", 0, kind, now, what=what, cause=cause)
            ).noticed = self._log.clock.monotonic()
        elif not cause and open_draft is not None:
            open_draft.change(until=self._end_of(open_draft, now))

    def _end_of(self, draft: _Draft, now: int) -> int:
        """Return when a state ended (milliseconds since the epoch), by its measured duration: an accepted clock
        leaps.
        """
        if draft.noticed is None:
            return max(now, draft.event.at + 1)
        return draft.event.at + max(1, round((self._log.clock.monotonic() - draft.noticed) * 1000))

    def _open_events_of_predecessors(self, kind: str) -> list[EventPost]:
        """Return the events of a state that earlier daemons left open, the newest last."""
        return sorted((e for e in self._ledger.events() if e.kind == kind and not e.until), key=lambda e: e.at)

    def _collect_sweeps(self, swept: list[Swept]) -> None:
        with self._lock:
            self._swept += swept

    def _record_retention(self, now: int) -> None:
        """Record what retention dropped: one event an hour."""
        with self._lock:
            swept, self._swept = [drop for drop in self._swept if not drop.topic.startswith("_")], []
        if not swept:
            return
        open_drafts = (
            d for d in self._drafts.values() if d.event.kind == "retention" and abs(now - d.event.at) < MAX_EVENT_MS
        )
        if (draft := next(open_drafts, None)) is None:
            self._dropped_topics.clear()
            draft = self._draft(EventPost(f"retention {now}", 0, "retention", now, now))
        for drop in swept:
            unread = drop.reason != EXPIRED_READ or self._dropped_topics.get(drop.topic, (0, False))[1]
            self._dropped_topics[drop.topic] = (drop.end, unread)
        # The event repeats all topics of its hour: a post replaces the previous version as a whole.
        draft.change(what=_retention_text(self._dropped_topics), until=now)

    def _post_due(self, now: int, last: bool) -> None:
        """Post changed events that are due; forget events that ended."""
        monotonic_now = time.monotonic()
        for draft in list(self._drafts.values()):
            if draft.has_unposted_change and (last or monotonic_now >= draft.due):
                self._post(draft, monotonic_now)
            event = draft.event
            if (
                not draft.has_unposted_change
                and event.until
                and abs(now - event.until) > max(LOSS_PAUSE_MS, MAX_EVENT_MS * (event.kind == "retention"))
            ):
                del self._drafts[event.id]
        # Threads: replaced as a whole, because the threads of the APIs read it without a lock.
        self._ledger.live = {
            draft.event.id: draft.event for draft in self._drafts.values() if draft.has_unposted_change
        }

    def _post(self, draft: _Draft, monotonic_now: float) -> None:
        draft.due, draft.delay = monotonic_now + draft.delay, min(2 * draft.delay, MAX_POST_DELAY_S)
        try:
            self._ledger.post(draft.event.document())
            draft.written = draft.event.version
        except PenstockError as error:
            # On a full disk the draft stays in memory, and the next check that is due tries again.
            _LOGGER.debug("timeline: an event could not be posted yet: %s", error)


def _add(draft: _Draft, growth: Counts, now: int) -> None:
    losses = Counts(draft.event.losses)
    losses.absorb(growth)
    draft.change(losses=losses, until=now)


def _retention_text(topics: Mapping[str, tuple[int, bool]]) -> str:
    """Return the text of a retention event: by topic the offset, and whether it was unread."""
    texts = [f"{name} up to offset {end:,}{' (unread)' if unread else ''}" for name, (end, unread) in topics.items()]
    more = f" and {len(texts) - MAX_NAMED_TOPICS} more" if len(texts) > MAX_NAMED_TOPICS else ""
    return f"{', '.join(texts[:MAX_NAMED_TOPICS])}{more}"

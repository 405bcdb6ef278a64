"""Writes down what happens: losses as they grow, a full disk, a clock that cannot be right, what retention drops.

Others post what only they know: the supervisor restarts and reloads, ``penstock up`` those of the pipeline. A loss
while a process was away becomes a part of its restart. What is not written down yet (each look at an event that goes on
would be a post) is shown all the same; a daemon that dies meanwhile finds it again, as the difference between what the
books say was lost and what events have told of.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.counts import Counts, Name
from penstock.errors import PenstockError
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import EventPost
from penstock.ledger.receipt import losses_of
from penstock.log import Log, Swept

EVERY = 1.0
"""Seconds between two looks."""
HANDED_OVER = 0.2
"""Seconds after which a loss is looked at again before it is told of: a reader that has little of a processor moves on
a tenth of a second after the log has stored what it gave.
"""
SHARE = 0.05
"""How much of a processor's time they take at most."""
SETTLES = 5_000
"""Milliseconds after a process is back in which a loss is still of its absence."""
QUIET = 60_000
"""Milliseconds after which a loss that goes on is another one."""
LONGEST = 3_600_000
"""Milliseconds that one event of losses, or of retention, is at most."""
ROOM_FOR = 10.0
"""Seconds without a refusal after which the disk has room again."""
LONGEST_DELAY = 60.0
MOST_TOPICS = 3
"""That are named."""
EXPIRED_READ = "expired_read"
BY_ABSENCE = (Name.KERNEL_DROPPED, f"{Name.INCOMPLETE}crash", f"{Name.INVALID}slot", Name.POLICY_DROP, Name.CORRUPT)
"""What is lost because a process is away; other losses meanwhile have nothing to do with that."""
ALL = "*"
"""The place of a restart that concerns all places: the log daemon's."""
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class _Draft:
    """An event that grows. ``due``: when it is to be written down again; ``begun``: when it was noticed, None where a
    daemon before noticed it. Both on the monotonic clock.
    """

    event: EventPost
    begun: float | None = None
    written: int = -1
    due: float = 0.0
    delay: float = EVERY

    @property
    def dirty(self) -> bool:
        return self.written < self.event.version

    def change(self, **to: object) -> None:
        version = self.event.version + (not self.dirty)
        self.event = replace(self.event, version=version, **to)  # type: ignore[arg-type]


class EventRecorder:
    """Looks at ``ledger`` and ``log`` on a thread of its own, until it is stopped.

    Events are dated by what the log's clock should say, so that a wrong clock neither reorders them nor joins losses
    that are years apart.
    """

    def __init__(self, ledger: Ledger, log: Log) -> None:
        self._ledger, self._log = ledger, log
        self._drafts: dict[str, _Draft] = {}
        self._looks = 0
        self._swept: list[Swept] = []
        self._dropped: dict[str, tuple[int, bool]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        log.observe_sweeps(self._sweeps)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return once all is written down; before the log is closed."""
        self._stop.set()
        self._thread.join()
        self.look(last=True)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            begin = time.thread_time()
            try:
                self.look()
            except Exception:
                _LOGGER.exception("events are not written down")
            pause = max(EVERY, (time.thread_time() - begin) / SHARE)

    def look(self, last: bool = False) -> None:
        """Enter what is new; with ``last``, write all of it down."""
        now = int(self._log.clock.expected() * 1000)
        for place, grown in self._grown():
            self._lose(place, grown, now)
        state = self._log.clock.state()
        self._lasts("clock", "" if state.right else state.text().partition(":")[0], now)
        self._lasts("disk", self._log.no_room(ROOM_FOR), now)
        self._expire(now)
        self._write(now, last)
        self._looks += 1

    def _grown(self) -> Iterator[tuple[str, Counts]]:
        """By place, losses that no event has told of."""
        told = {place: Counts(counts) for place, counts in self._ledger.told().items()}
        for draft in self._drafts.values():
            told.setdefault(draft.event.place, Counts()).absorb(self._unwritten(draft))
        if not (grown := self._beyond(told)):
            return
        # A count that is just handed over is seen on both sides until its reader has moved on; what was told is not
        # taken back.
        self._stop.wait(HANDED_OVER)
        again = self._beyond(told)
        for place, counts in grown.items():
            if more := counts & again.get(place, Counts()):
                yield place, Counts(more)

    def _beyond(self, told: Mapping[str, Counts]) -> dict[str, Counts]:
        found = {}
        for place, counts in losses_of(self._ledger.balance().document()).items():
            grown = Counts({name: n - told.get(place, Counts())[name] for name, n in counts.items()})
            if more := Counts({name: n for name, n in grown.items() if n > 0}):
                found[place] = more
        return found

    def _unwritten(self, draft: _Draft) -> Counts:
        grown = Counts(draft.event.lost)
        known = self._ledger.event(draft.event.id)
        grown.subtract(known.lost if known else {})
        return grown

    def _lose(self, place: str, grown: Counts, now: int) -> None:
        of_absence = Counts({name: n for name, n in grown.items() if name.startswith(BY_ABSENCE)})
        if of_absence and (draft := self._absence(place, now)):
            _add(draft, of_absence, now)
            grown -= of_absence
        if grown:
            _add(self._loss(place, now), grown, now)

    def _absence(self, place: str, now: int) -> _Draft | None:
        """The losses of a restart that is just going on."""
        for event in reversed(self._ledger.events()):
            concerns = event.kind == "restart" and event.place in (place, ALL)
            if concerns and (not event.until or abs(now - event.until) < SETTLES):  # others date with their own clock
                mine = EventPost(f"{event.id} {place}", 0, "loss", event.at, now, place=place, during=event.id)
                return self._draft(self._ledger.event(mine.id) or mine)
        return None

    def _loss(self, place: str, now: int) -> _Draft:
        for draft in self._drafts.values():
            event = draft.event
            own = event.kind == "loss" and event.place == place and not event.during
            if own and abs(now - event.until) < QUIET and abs(now - event.at) < LONGEST:
                return draft
        cause = "" if self._looks else "counted when the log daemon started"
        return self._draft(EventPost(f"loss {place} {now}", 0, "loss", now, now, place=place, cause=cause))

    def _draft(self, event: EventPost) -> _Draft:
        if event.id not in self._drafts:
            known = self._ledger.event(event.id)
            self._drafts[event.id] = _Draft(event, known.version if known else -1)
        return self._drafts[event.id]

    def _lasts(self, kind: str, cause: str, now: int) -> None:
        """A state that ``cause`` tells of has begun, goes on, or (empty) has ended."""
        goes_on = next((d for d in self._drafts.values() if d.event.kind == kind and not d.event.until), None)
        if not self._looks and (event := self._left(kind)):
            goes_on = self._draft(event)
        if cause and goes_on is None:
            self._draft(EventPost(f"{kind} {now}", 0, kind, now, cause=cause)).begun = self._log.clock.monotonic()
        elif not cause and goes_on is not None:
            goes_on.change(until=self._end_of(goes_on, now))

    def _end_of(self, draft: _Draft, now: int) -> int:
        """Return when a state ended, in milliseconds: an accepted clock leaps, so its length is measured."""
        if draft.begun is None:
            return max(now, draft.event.at + 1)
        return draft.event.at + max(1, round((self._log.clock.monotonic() - draft.begun) * 1000))

    def _left(self, kind: str) -> EventPost | None:
        """The newest event of a state that a daemon before has left without an end."""
        return next((e for e in reversed(self._ledger.events()) if e.kind == kind and not e.until), None)

    def _sweeps(self, swept: list[Swept]) -> None:
        with self._lock:
            self._swept += swept

    def _expire(self, now: int) -> None:
        """What retention dropped: one event for an hour."""
        with self._lock:
            swept, self._swept = [one for one in self._swept if not one.topic.startswith("_")], []
        if not swept:
            return
        known = (d for d in self._drafts.values() if d.event.kind == "retention" and abs(now - d.event.at) < LONGEST)
        if (draft := next(known, None)) is None:
            self._dropped.clear()
            draft = self._draft(EventPost(f"retention {now}", 0, "retention", now, now))
        for one in swept:
            unread = one.reason != EXPIRED_READ or self._dropped.get(one.topic, (0, False))[1]
            self._dropped[one.topic] = (one.end, unread)
        draft.change(what=_dropped(self._dropped), until=now)

    def _write(self, now: int, last: bool) -> None:
        """Post what is new and due; forget what is over."""
        at = time.monotonic()
        for draft in list(self._drafts.values()):
            if draft.dirty and (last or at >= draft.due):
                self._post(draft, at)
            event = draft.event
            if (
                not draft.dirty
                and event.until
                and abs(now - event.until) > max(QUIET, LONGEST * (event.kind == "retention"))
            ):
                del self._drafts[event.id]
        self._ledger.live = {draft.event.id: draft.event for draft in self._drafts.values() if draft.dirty}

    def _post(self, draft: _Draft, at: float) -> None:
        draft.due, draft.delay = at + draft.delay, min(2 * draft.delay, LONGEST_DELAY)
        try:
            self._ledger.post(draft.event.document())
            draft.written = draft.event.version
        except PenstockError as error:  # a full disk: when there is room again
            _LOGGER.debug("an event is not written down yet: %s", error)


def _add(draft: _Draft, grown: Counts, now: int) -> None:
    lost = Counts(draft.event.lost)
    lost.absorb(grown)
    draft.change(lost=lost, until=now)


def _dropped(topics: Mapping[str, tuple[int, bool]]) -> str:
    """What retention dropped: by topic up to which offset, and whether somebody had not read it."""
    parts = [f"{name} up to offset {end:,}{' (unread)' if unread else ''}" for name, (end, unread) in topics.items()]
    more = f" and {len(parts) - MOST_TOPICS} more" if len(parts) > MOST_TOPICS else ""
    return f"{', '.join(parts[:MOST_TOPICS])}{more}"

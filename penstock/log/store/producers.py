"""Producers: what makes a retry harmless. Each counts its appends to a topic; a number comes in once.

The numbers travel with the batches (so that whatever is stored is remembered), and each segment begins with a
snapshot of what was remembered then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.log.errors import OutOfSequence

REMEMBERED = 8
"""Answers kept of each producer: as many requests may be on their way at once."""
MAX_PRODUCERS = 2000
"""Producers kept of each topic; the one that was silent for longest is forgotten first."""
MAX_ID = 200
"""Longest producer id, in characters."""


@dataclass(frozen=True, slots=True)
class ProducerSequence:
    """Who appends, and its how manieth append to the topic this is. Raises ValueError for what cannot be one."""

    id: str
    sequence: int

    def __post_init__(self) -> None:
        if not 0 < len(self.id) <= MAX_ID:
            raise ValueError(f"a producer's id has 1 to {MAX_ID} characters")
        if not 0 <= self.sequence < 1 << 63:
            raise ValueError(f"sequence {self.sequence} is not in [0, 2**63)")


@dataclass(frozen=True, slots=True)
class Taken:
    """An append of a producer that is stored: its number, offsets [first, first + count), first timestamp (us)."""

    sequence: int
    first: int
    count: int
    time: int


ProducerEntry = tuple[str, int, int, int, int]
"""As it stands in a batch's document: producer id, and the fields of Taken."""


@dataclass(slots=True)
class _Known:
    taken: deque[Taken] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def last(self) -> Taken:
        return self.taken[-1]


class Producers:
    """The producers of one topic. ``memory`` is how long a silent one is remembered, seconds."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._known: OrderedDict[str, _Known] = OrderedDict()  # the one that was silent for longest first

    def find(self, producer: ProducerSequence) -> Taken | None:
        """What was stored under this number; None for the next one, or of a producer that is not known.

        Raises OutOfSequence.
        """
        known = self._known.get(producer.id)
        if known is None:
            return None
        check_next(producer, known.last.sequence, known.taken[0].sequence)
        return next((taken for taken in known.taken if taken.sequence == producer.sequence), None)

    def last(self, producer_id: str) -> int | None:
        """The last number that was stored of a producer; None when it is not known."""
        known = self._known.get(producer_id)
        return None if known is None else known.last.sequence

    def enter(self, producer_id: str, taken: Taken) -> None:
        """Remember what was stored; entered again, it changes nothing."""
        known = self._known.setdefault(producer_id, _Known())
        if not known.taken or taken.sequence > known.last.sequence:
            known.taken.append(taken)
        self._known.move_to_end(producer_id)
        if len(self._known) > MAX_PRODUCERS:
            self._known.popitem(last=False)

    def enter_all(self, entries: Iterable[ProducerEntry]) -> None:
        """Remember what a stored batch's document tells."""
        for name, *taken in entries:
            self.enter(name, Taken(*taken))

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()

    def forget(self, now: int) -> None:
        """Forget who was silent for too long; ``now`` in microseconds."""
        limit = now - self._memory * 1e6
        while self._known and next(iter(self._known.values())).last.time < limit:
            self._known.popitem(last=False)

    def document(self) -> dict[str, Any]:
        """JSON-ready, in order of their last append."""
        return {
            name: [[t.sequence, t.first, t.count, t.time] for t in known.taken] for name, known in self._known.items()
        }

    def load(self, document: Mapping[str, Iterable[Iterable[int]]]) -> None:
        """Enter all of ``document``. Raises TypeError or ValueError."""
        for name, many in document.items():
            for values in many:
                self.enter(str(name), Taken(*map(int, values)))


def check_next(producer: ProducerSequence, last: int, oldest: int) -> None:
    """Raises OutOfSequence unless the number follows ``last``, or is one from ``oldest`` on."""
    if producer.sequence > last + 1:
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} leaves a gap, the next one is {last + 1}")
    if producer.sequence < oldest:
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} is older than what is remembered")

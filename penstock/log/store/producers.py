"""Producers: numbered appends that are stored once, however often they are sent.

Invariant: a number that is still remembered is stored at most once; a retry gets the first answer. The numbers are
stored with the batches, and each segment starts with a snapshot, so that memory and files never disagree after a
crash.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from penstock.log.errors import OutOfSequence, StoredAlready
from penstock.records import bounds

ANSWERS_PER_PRODUCER = 256
"""Answers kept per producer: covers retries of the last 256 appends."""
MAX_PRODUCERS = 100_000
"""Producers kept per topic; the one that was silent for longest is forgotten first."""
MAX_ANSWERS = 200_000
"""Answers kept per topic: 60 MB of memory. Above it, all producers lose their older answers."""
TRIMMED_ANSWERS = (64, 8, 1)
"""Answers kept per producer above MAX_ANSWERS: 64 covers the appends of a relay that travel together, 8 the requests in
flight of other clients, 1 is the minimum for retries."""
TRIM_TARGET = 0.9
"""Share of MAX_ANSWERS that a trim must reach, so that the next append does not trim again."""
MAX_ID = 200
"""Longest producer id, in characters."""
EPOCH_BITS = 47
"""Bits of a sequence number below the epoch, for producers that count rows."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerSequence:
    """A producer's id and the sequence number of one append. Raises ValueError for values out of range.

    With ``by_rows`` the number is that of the append's first row, as Kafka's producers count. The bits above
    EPOCH_BITS are the producer's epoch; a new epoch starts again at row 0.
    """

    id: str
    sequence: int
    by_rows: bool = False

    def __post_init__(self) -> None:
        if not 0 < len(self.id) <= MAX_ID:
            raise ValueError(f"a producer's id has 1 to {MAX_ID} characters")
        if not 0 <= self.sequence < 1 << 63:
            raise ValueError(f"sequence {self.sequence} is not in [0, 2**63)")


@dataclass(frozen=True, slots=True)
class StoredAppend:
    """A stored append of a producer: number, offsets [first, first + count), first timestamp (us), rows' checksum."""

    sequence: int
    first: int
    count: int
    time: int
    checksum: int


ProducerEntry = tuple[str, int, int, int, int, int]
"""The form in a batch's document: producer id, and the fields of StoredAppend."""


def checksum(body: pa.RecordBatch) -> int:
    """Return the CRC32C of the rows of ``body`` (BODY), independent of their memory layout."""
    crc = 0
    for column in body.columns:
        crc = _absorb(column, crc)
    return crc


def _absorb(column: pa.Array[Any], crc: int) -> int:
    if column.null_count == len(column):  # fast path: most columns of most appends
        return int(crc32c(b"no values", crc))
    offsets = bounds(column)
    begin, end = int(offsets[0]), int(offsets[-1])
    crc = int(crc32c((offsets - begin).tobytes(), crc))
    if column.null_count:
        crc = int(crc32c(column.is_valid().to_numpy(zero_copy_only=False).tobytes(), crc))
    if isinstance(column, pa.MapArray):
        for part in (column.keys, column.items):
            crc = _absorb(part.slice(begin, end - begin), crc)
        return crc
    return int(crc32c(memoryview(column.buffers()[2] or b"")[begin:end], crc)) if end > begin else crc


def check_same(producer: ProducerSequence, count: int, rows_checksum: int, stored: StoredAppend) -> None:
    """Raise StoredAlready if ``stored`` has other rows under the producer's number."""
    if count != stored.count or stored.checksum != rows_checksum:
        raise StoredAlready(
            f"producer {producer.id!r}: {producer.sequence} is stored already, with other rows ({stored.count} at"
            f" offset {stored.first}): these {count} are not stored"
        )


class Producers:
    """The producers of one topic. ``memory`` is the time after which a silent one is forgotten, in seconds.

    Invariant: silence is time that the log ran, on its ``monotonic`` clock. A wall clock that jumps ahead, or was
    behind at the last append, would make a retry of a minute ago look a day old, and it would be stored twice.

    Owned by the Writer: one thread at a time. Ordered by last append, the most silent producer first.
    """

    def __init__(self, memory: float, name: str = "", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._memory = memory
        self._name = name
        self._monotonic = monotonic
        self._answers_of: OrderedDict[str, deque[StoredAppend]] = OrderedDict()
        self._silent_since: dict[str, float] = {}
        self._uncertain: set[str] = set()
        self._answers = 0
        self._warned = False

    def stored_append(self, producer: ProducerSequence) -> StoredAppend | None:
        """Return the stored append with this number; None for the next number or an unknown producer.

        None also if the stored append was damaged: it is stored again. Raises OutOfSequence.
        """
        answers = self._answers_of.get(producer.id)
        if answers is None or (producer.id in self._uncertain and producer.sequence > answers[-1].sequence):
            return None
        check_next(producer, answers[-1].sequence, answers[0].sequence, answers[-1].count)
        if producer.sequence > answers[-1].sequence:
            return None
        match = next((stored for stored in reversed(answers) if stored.sequence == producer.sequence), None)
        if match is None and producer.by_rows:
            _check_inside_gap(producer, answers)
        return match

    def last(self, producer_id: str) -> int | None:
        """Return the last stored number of a producer; None if it is unknown."""
        answers = self._answers_of.get(producer_id)
        return None if answers is None else answers[-1].sequence

    def enter(self, producer_id: str, stored: StoredAppend) -> None:
        """Remember a stored append; a repeated call changes nothing."""
        answers = self._answers_of.setdefault(producer_id, deque())
        if not answers or stored.sequence > answers[-1].sequence:
            answers.append(stored)
            self._uncertain.discard(producer_id)
            self._answers += 1
            self._trim(answers, ANSWERS_PER_PRODUCER)
        elif stored.sequence > answers[0].sequence and all(stored.sequence != answer.sequence for answer in answers):
            answers.insert(
                bisect(answers, stored.sequence, key=lambda answer: answer.sequence), stored
            )  # replaces a damaged one
            self._answers += 1
        self._answers_of.move_to_end(producer_id)
        self._silent_since[producer_id] = self._monotonic()
        if len(self._answers_of) > MAX_PRODUCERS:
            self._forget_most_silent()
            self._warn_once()
        if self._answers > MAX_ANSWERS:
            self._trim_all()

    def doubt(self) -> None:
        """Mark the last appends of all producers as possibly damaged: any greater number is accepted as their next."""
        self._uncertain = set(self._answers_of)

    def _trim(self, answers: deque[StoredAppend], limit: int) -> None:
        while len(answers) > limit:
            answers.popleft()
            self._answers -= 1

    def _trim_all(self) -> None:
        for limit in TRIMMED_ANSWERS:
            for answers in self._answers_of.values():
                self._trim(answers, limit)
            if self._answers <= MAX_ANSWERS * TRIM_TARGET:
                return

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            _LOGGER.warning(
                "topic %s: more than %d producers append within transactions.producer_memory: the most silent ones are"
                " forgotten, and their retries are stored again",
                self._name,
                MAX_PRODUCERS,
            )

    def _forget_most_silent(self) -> None:
        name, answers = self._answers_of.popitem(last=False)
        self._uncertain.discard(name)
        del self._silent_since[name]
        self._answers -= len(answers)

    def enter_all(self, entries: Iterable[ProducerEntry]) -> None:
        """Remember the producer entries of a stored batch."""
        for name, *fields in entries:
            self.enter(name, StoredAppend(*fields))

    def clear(self) -> None:
        """Forget all producers."""
        self._answers_of.clear()
        self._uncertain.clear()
        self._silent_since.clear()
        self._answers = 0

    def forget(self) -> None:
        """Forget producers that were silent for too long."""
        limit = self._monotonic() - self._memory
        while self._answers_of and self._silent_since[next(iter(self._answers_of))] < limit:
            self._forget_most_silent()

    def document(self) -> dict[str, Any]:
        """Return a JSON-ready document, in order of the last append; ``silent`` is in seconds."""
        now = self._monotonic()
        silent = {name: int(now - since) for name, since in self._silent_since.items()}
        return {
            "producers": {name: [_numbers(stored) for stored in answers] for name, answers in self._answers_of.items()},
            "unsure": sorted(self._uncertain),
            "silent": {name: seconds for name, seconds in silent.items() if seconds},
        }

    def load(self, document: Mapping[str, Any]) -> None:
        """Enter all appends of ``document``. Raises TypeError, ValueError or AttributeError."""
        for name, appends in document.get("producers", {}).items():
            for sequence, first, count, timestamp, rows_checksum in appends:
                self.enter(
                    str(name), StoredAppend(int(sequence), int(first), int(count), int(timestamp), int(rows_checksum))
                )
        self._uncertain.update(name for name in document.get("unsure", ()) if name in self._answers_of)
        # Compatibility: an earlier version stored no silence; its producers are remembered for longer.
        now = self._monotonic()
        for name, seconds in document.get("silent", {}).items():
            if name in self._answers_of:
                self._silent_since[name] = now - int(seconds)


def _numbers(stored: StoredAppend) -> list[int]:
    return [stored.sequence, stored.first, stored.count, stored.time, stored.checksum]


def check_next(producer: ProducerSequence, last: int, oldest: int, rows: int) -> None:
    """Raise OutOfSequence unless the number follows ``last`` (an append of ``rows``) or is at least ``oldest``."""
    following = last + (rows if producer.by_rows else 1)
    if producer.sequence > last and producer.sequence != following and not _starts_epoch(producer, last):
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} leaves a gap, the next one is {following}")
    if producer.sequence < oldest:
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} is older than the remembered ones")


def _starts_epoch(producer: ProducerSequence, last: int) -> bool:
    """Report whether the number is the first one of a new epoch."""
    epoch, number = divmod(producer.sequence, 1 << EPOCH_BITS)
    return producer.by_rows and number == 0 and epoch > last >> EPOCH_BITS


def _check_inside_gap(producer: ProducerSequence, answers: Iterable[StoredAppend]) -> None:
    """Raise OutOfSequence for a number between stored ones, unless the append there was damaged."""
    before = [stored for stored in answers if stored.sequence < producer.sequence]
    last = before[-1] if before else None
    newest = max(stored.sequence for stored in answers) >> EPOCH_BITS
    if producer.sequence >> EPOCH_BITS < newest or (last and last.sequence + last.count > producer.sequence):
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} is not one that comes next, nor one stored")

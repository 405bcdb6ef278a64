"""Producers: what makes a retry harmless. Each counts its appends to a topic; a number comes in once.

The numbers travel with the batches (so that whatever is stored is remembered), and each segment begins with a
snapshot of what was remembered then.
"""

from __future__ import annotations

import logging
from bisect import bisect
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from penstock.log.errors import OutOfSequence
from penstock.records import bounds

ANSWERS_PER_PRODUCER = 256
"""Answers kept of each producer."""
MAX_PRODUCERS = 100_000
"""Producers kept of each topic; the one that was silent for longest is forgotten first."""
MAX_ANSWERS = 200_000
"""Answers kept of each topic (60 MB of memory). Where there are more, the older ones of all producers go."""
FEWER = (8, 1)
"""So many of each producer stay then: as many requests may be on their way at once, or the last one."""
ROOM = 0.9
"""How full the memory is left then."""
MAX_ID = 200
"""Longest producer id, in characters."""
EPOCH_BITS = 47
"""The epoch of a producer that counts rows stands above so many bits of its numbers."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerSequence:
    """Who appends, and its how manieth append to the topic this is. Raises ValueError for what cannot be one.

    With ``by_rows`` it is the number of the append's first row instead, as Kafka's producers count; above EPOCH_BITS
    bits stands the producer's epoch, and a greater one begins again at 0.
    """

    id: str
    sequence: int
    by_rows: bool = False

    def __post_init__(self) -> None:
        if not 0 < len(self.id) <= MAX_ID:
            raise ValueError(f"a producer's id has 1 to {MAX_ID} characters")
        if not 0 <= self.sequence < 1 << 63:
            raise ValueError(f"sequence {self.sequence} is not in [0, 2**63)")


UNKNOWN = -1
"""The checksum of what was stored by a version that kept none."""


@dataclass(frozen=True, slots=True)
class StoredAppend:
    """An append of a producer that is stored: its number, offsets [first, first + count), first timestamp (us).

    ``checksum`` is that of its rows, or UNKNOWN.
    """

    sequence: int
    first: int
    count: int
    time: int
    checksum: int = UNKNOWN


ProducerEntry = tuple[str, int, int, int, int, int]
"""As it travels with a batch: producer id, and the fields of Taken."""


def checksum(body: pa.RecordBatch) -> int:
    """The CRC32C of the rows of ``body`` (BODY): the same for the same rows, wherever in memory they are."""
    crc = 0
    for column in body.columns:
        crc = _absorb(column, crc)
    return crc


def _absorb(column: pa.Array[Any], crc: int) -> int:
    if column.null_count == len(column):  # most columns of most appends
        return int(crc32c(b"no values", crc))
    places = bounds(column)
    begin, end = int(places[0]), int(places[-1])
    crc = int(crc32c((places - begin).tobytes(), crc))
    if column.null_count:
        crc = int(crc32c(column.is_valid().to_numpy(zero_copy_only=False).tobytes(), crc))
    if isinstance(column, pa.MapArray):
        for part in (column.keys, column.items):
            crc = _absorb(part.slice(begin, end - begin), crc)
        return crc
    return int(crc32c(memoryview(column.buffers()[2] or b"")[begin:end], crc)) if end > begin else crc


def check_same(producer: ProducerSequence, count: int, rows_checksum: int, taken: StoredAppend) -> None:
    """Raises OutOfSequence where other rows than those of ``taken`` come under its number."""
    if count != taken.count or taken.checksum not in (UNKNOWN, rows_checksum):
        raise OutOfSequence(
            f"producer {producer.id!r}: {producer.sequence} is stored already, with other rows ({taken.count} at offset"
            f" {taken.first}): these {count} are not stored"
        )


class Producers:
    """The producers of one topic. ``memory`` is how long a silent one is remembered, seconds."""

    def __init__(self, memory: float, name: str = "") -> None:
        self._memory = memory
        self._name = name
        self._known: OrderedDict[str, deque[StoredAppend]] = OrderedDict()  # the one that was silent for longest first
        self._unsure: set[str] = set()
        self._answers = 0
        self._told = False

    def find(self, producer: ProducerSequence) -> StoredAppend | None:
        """What was stored under this number; None for the next one, or of a producer that is not known.

        None too for what was damaged: it is stored again. Raises OutOfSequence.
        """
        known = self._known.get(producer.id)
        if known is None or (producer.id in self._unsure and producer.sequence > known[-1].sequence):
            return None
        check_next(producer, known[-1].sequence, known[0].sequence, known[-1].count)
        if producer.sequence > known[-1].sequence:
            return None
        found = next((taken for taken in reversed(known) if taken.sequence == producer.sequence), None)
        if found is None and producer.by_rows:
            _check_room(producer, known)
        return found

    def last(self, producer_id: str) -> int | None:
        """The last number that was stored of a producer; None when it is not known."""
        known = self._known.get(producer_id)
        return None if known is None else known[-1].sequence

    def enter(self, producer_id: str, taken: StoredAppend) -> None:
        """Remember what was stored; entered again, it changes nothing."""
        known = self._known.setdefault(producer_id, deque())
        if not known or taken.sequence > known[-1].sequence:
            known.append(taken)
            self._unsure.discard(producer_id)
            self._answers += 1
            self._trim(known, ANSWERS_PER_PRODUCER)
        elif taken.sequence > known[0].sequence and all(taken.sequence != other.sequence for other in known):
            known.insert(bisect(known, taken.sequence, key=lambda other: other.sequence), taken)  # was damaged
            self._answers += 1
        self._known.move_to_end(producer_id)
        if len(self._known) > MAX_PRODUCERS:
            self._forget_first()
            self._tell()
        if self._answers > MAX_ANSWERS:
            self._make_room()

    def doubt(self) -> None:
        """What was stored last of those that are known may be damaged: their next number may be any."""
        self._unsure = set(self._known)

    def _trim(self, known: deque[StoredAppend], keep: int) -> None:
        while len(known) > keep:
            known.popleft()
            self._answers -= 1

    def _make_room(self) -> None:
        for keep in FEWER:
            for known in self._known.values():
                self._trim(known, keep)
            if self._answers <= MAX_ANSWERS * ROOM:
                return

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            _LOGGER.warning(
                "topic %s: more than %d producers append within transactions.producer_memory: those that are silent for"
                " longest are forgotten, and what they send again is stored again",
                self._name,
                MAX_PRODUCERS,
            )

    def _forget_first(self) -> None:
        name, known = self._known.popitem(last=False)
        self._unsure.discard(name)
        self._answers -= len(known)

    def enter_all(self, entries: Iterable[ProducerEntry]) -> None:
        """Remember what a stored batch's document tells."""
        for name, *taken in entries:
            self.enter(name, StoredAppend(*taken))

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()
        self._unsure.clear()
        self._answers = 0

    def forget(self, now: int) -> None:
        """Forget who was silent for too long; ``now`` in microseconds."""
        limit = now - self._memory * 1e6
        while self._known and next(iter(self._known.values()))[-1].time < limit:
            self._forget_first()

    def document(self) -> dict[str, Any]:
        """JSON-ready, in order of their last append; checksums stand apart, for older versions read this too."""
        return {
            "producers": {name: [_numbers(taken) for taken in known] for name, known in self._known.items()},
            "checksums": {name: [taken.checksum for taken in known] for name, known in self._known.items()},
            "unsure": sorted(self._unsure),
        }

    def load(self, document: Mapping[str, Any]) -> None:
        """Enter all of ``document``. Raises TypeError, ValueError or AttributeError."""
        checksums = document.get("checksums", {})
        for name, many in document.get("producers", {}).items():
            sums = checksums.get(name) or [UNKNOWN] * len(many)
            for (sequence, first, count, time), told in zip(many, sums, strict=True):
                self.enter(str(name), StoredAppend(int(sequence), int(first), int(count), int(time), int(told)))
        self._unsure.update(name for name in document.get("unsure", ()) if name in self._known)


def _numbers(taken: StoredAppend) -> list[int]:
    return [taken.sequence, taken.first, taken.count, taken.time]


def check_next(producer: ProducerSequence, last: int, oldest: int, rows: int) -> None:
    """Raises OutOfSequence unless the number follows ``last`` (an append of ``rows``), or is one from ``oldest`` on."""
    following = last + (rows if producer.by_rows else 1)
    if producer.sequence > last and producer.sequence != following and not _begins(producer, last):
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} leaves a gap, the next one is {following}")
    if producer.sequence < oldest:
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} is older than what is remembered")


def _begins(producer: ProducerSequence, last: int) -> bool:
    """Whether the number is the first one of a new epoch."""
    epoch, number = divmod(producer.sequence, 1 << EPOCH_BITS)
    return producer.by_rows and number == 0 and epoch > last >> EPOCH_BITS


def _check_room(producer: ProducerSequence, known: Iterable[StoredAppend]) -> None:
    """Raises OutOfSequence for a number between those that are stored, unless what was stored there was damaged."""
    before = [taken for taken in known if taken.sequence < producer.sequence]
    last = before[-1] if before else None
    newest = max(taken.sequence for taken in known) >> EPOCH_BITS
    if producer.sequence >> EPOCH_BITS < newest or (last and last.sequence + last.count > producer.sequence):
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} is not one that comes next, nor one stored")

"""Which of the waiting appends are to be stored: each frame of a log buffer, and each number of a producer, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.log.commit.batching import Appended, QueuedAppend, appended
from penstock.log.errors import OutOfSequence, WriteFailed
from penstock.log.settings import Durability
from penstock.log.store import row_format
from penstock.log.store.producers import Producers, ProducerSequence, StoredAppend, check_next, check_same, checksum
from penstock.records import Body, Rows

NO_TIMES = np.empty(0, np.int64)


@dataclass(slots=True)
class Deduplicated:
    """``fresh`` are to be stored; ``stored`` are frames that are there already; ``again`` ask for one of the fresh."""

    fresh: list[QueuedAppend] = field(default_factory=list)
    stored: list[QueuedAppend] = field(default_factory=list)
    again: list[tuple[QueuedAppend, QueuedAppend]] = field(default_factory=list)


class Deduplicator:
    """Remembers the log buffers of which a frame failed. One thread at a time."""

    def __init__(self) -> None:
        self.durability: Durability = "synced"
        self._refused: dict[str, int] = {}

    def sort(self, items: Iterable[QueuedAppend], positions: Mapping[str, int], producers: Producers) -> Deduplicated:
        """Sort out waiting appends. Those of producers that need no storing, or must not be, are answered."""
        found = Deduplicated()
        reached = dict(positions)
        coming: dict[str, dict[int, QueuedAppend]] = {}
        for item in items:
            if item.origin.buffer:
                self._sort_frame(item, reached, found)
            elif item.producer is not None:
                self._sort_number(item, producers, coming.setdefault(item.producer.id, {}), found)
            else:
                found.fresh.append(item)
        return found

    def _sort_frame(self, item: QueuedAppend, reached: dict[str, int], found: Deduplicated) -> None:
        buffer, end = item.origin.buffer, item.origin.end
        if not self._admits(item):
            return
        (found.fresh if end > reached.get(buffer, 0) else found.stored).append(item)
        reached[buffer] = max(end, reached.get(buffer, 0))

    def _admits(self, item: QueuedAppend) -> bool:
        """Whether a frame may go on: not while an earlier one of its log buffer has failed and not come again.

        Else a later frame would be stored, and the failed one then be skipped as stored already.
        """
        buffer, begin = item.origin.buffer, item.origin.begin
        failed = self._refused.get(buffer)
        if failed is None or begin <= failed:
            self._refused.pop(buffer, None)
            return True
        self._refused[buffer] = begin
        item.future.set_exception(WriteFailed(f"an earlier frame of buffer {buffer} failed: begin again there"))
        return False

    def _sort_number(
        self, item: QueuedAppend, producers: Producers, coming: dict[int, QueuedAppend], found: Deduplicated
    ) -> None:
        assert item.producer is not None
        producer, item.checksum = item.producer, _checksum(item.body)
        try:
            if (first := coming.get(producer.sequence)) is not None:
                check_same(producer, item.body.num_rows, item.checksum, _coming(first))
                found.again.append((item, first))
                return
            taken = _taken(producer, producers, coming)
            if taken is not None:
                check_same(producer, item.body.num_rows, item.checksum, taken)
        except OutOfSequence as error:
            item.future.set_exception(error)
            return
        if taken is not None:
            item.future.set_result(appended(taken, self.durability))
        else:
            coming[producer.sequence] = item
            found.fresh.append(item)

    def refuse(self, items: Iterable[QueuedAppend]) -> None:
        """These were not stored: their log buffers begin again there."""
        for origin in (item.origin for item in items if item.origin.buffer):
            self._refused[origin.buffer] = max(origin.begin, self._refused.get(origin.buffer, 0))


def _checksum(body: Body) -> int:
    return row_format.checksum(body) if isinstance(body, Rows) else checksum(body)


def _coming(first: QueuedAppend) -> StoredAppend:
    """What is going to be stored of an append that has no place yet."""
    sequence = first.producer.sequence if first.producer else 0
    return StoredAppend(sequence, -1, first.body.num_rows, 0, first.checksum)


def _taken(producer: ProducerSequence, producers: Producers, coming: Mapping[int, QueuedAppend]) -> StoredAppend | None:
    """What was stored under this number; None where it is the next one. Raises OutOfSequence."""
    last = max(coming, default=None)
    if last is None:
        return producers.find(producer)
    if producer.sequence > last:
        check_next(producer, last, last, coming[last].body.num_rows)
        return None
    taken = producers.find(producer)
    if taken is None:
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} comes after {last}")
    return taken


def answer_others(found: Deduplicated, end: int, durability: Durability) -> None:
    """Answer those that needed no storing, once the fresh ones are answered; ``end`` is the topic's end."""
    for item in found.stored:
        item.future.set_result(Appended(end, 0, NO_TIMES, durability))
    for item, first in found.again:
        item.future.set_result(first.future.result())

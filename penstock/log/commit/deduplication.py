"""Selection of the waiting appends that must be stored: each frame and each producer number once.

Invariant: a retry never stores rows a second time, and a skipped frame is always stored already.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.log.commit.batching import Appended, QueuedAppend, answer_stored
from penstock.log.errors import OutOfSequence, WriteFailed
from penstock.log.settings import Durability
from penstock.log.store import row_format
from penstock.log.store.producers import (
    EPOCH_BITS,
    Producers,
    ProducerSequence,
    StoredAppend,
    check_next,
    check_same,
    checksum,
)
from penstock.records import Body, Rows

NO_TIMES = np.empty(0, np.int64)
MAX_FAILED_FIRSTS = 10_000
"""Limit: producers whose first append failed."""


@dataclass(slots=True)
class Deduplicated:
    """Sorted appends: ``fresh`` must be stored; ``stored`` are frames that are stored already, and questions for an
    append that is not stored; ``again`` repeat a fresh one.
    """

    fresh: list[QueuedAppend] = field(default_factory=list)
    stored: list[QueuedAppend] = field(default_factory=list)
    again: list[tuple[QueuedAppend, QueuedAppend]] = field(default_factory=list)


class Deduplicator:
    """The appends that failed and must be retried before later ones, and the selection.

    Owned by the Writer: one thread at a time.
    """

    def __init__(self) -> None:
        self.durability: Durability = "synced"
        self._refused: dict[str, int] = {}
        self._failed_firsts: OrderedDict[str, int] = OrderedDict()

    def sort(self, appends: Iterable[QueuedAppend], positions: Mapping[str, int], producers: Producers) -> Deduplicated:
        """Sort waiting appends; answer producer appends that are stored already or must be refused."""
        selection = Deduplicated()
        reached = dict(positions)
        pending: dict[str, dict[int, QueuedAppend]] = {}
        for append in appends:
            if append.origin.buffer:
                self._sort_frame(append, reached, selection)
            elif append.producer is not None:
                self._sort_producer_append(append, producers, pending.setdefault(append.producer.id, {}), selection)
            else:
                selection.fresh.append(append)
        return selection

    def _sort_frame(self, append: QueuedAppend, reached: dict[str, int], selection: Deduplicated) -> None:
        buffer, end = append.origin.buffer, append.origin.end
        if not self._admits(append):
            return
        (selection.fresh if end > reached.get(buffer, 0) else selection.stored).append(append)
        reached[buffer] = max(end, reached.get(buffer, 0))

    def _admits(self, append: QueuedAppend) -> bool:
        """Report whether a frame may be stored: not until an earlier failed frame of its log buffer was retried.

        If a later frame were stored, the position would pass the failed one, and its retry would be skipped as stored.
        """
        buffer, begin = append.origin.buffer, append.origin.begin
        failed = self._refused.get(buffer)
        if failed is None or begin <= failed:
            self._refused.pop(buffer, None)
            return True
        self._refused[buffer] = begin
        append.future.set_exception(WriteFailed(f"an earlier frame of buffer {buffer} failed: begin again there"))
        return False

    def _sort_producer_append(
        self, append: QueuedAppend, producers: Producers, pending: dict[int, QueuedAppend], selection: Deduplicated
    ) -> None:
        assert append.producer is not None
        producer, append.checksum = append.producer, _checksum(append.body)
        is_question = not append.body.num_rows
        try:
            if (first := pending.get(producer.sequence)) is not None:
                if not is_question:
                    check_same(producer, append.body.num_rows, append.checksum, _expected_append(first))
                selection.again.append((append, first))
                return
            self._check_failed_first(producer, pending)
            stored = _find_stored(producer, producers, pending)
            if stored is not None and not is_question:
                check_same(producer, append.body.num_rows, append.checksum, stored)
        except OutOfSequence as error:
            append.future.set_exception(error)
            return
        if stored is not None:
            append.future.set_result(answer_stored(stored, self.durability))
        elif is_question:
            selection.stored.append(append)
        else:
            pending[producer.sequence] = append
            selection.fresh.append(append)

    def _check_failed_first(self, producer: ProducerSequence, pending: Mapping[int, QueuedAppend]) -> None:
        """Raise OutOfSequence for a number behind a failed first one.

        Any first number of a producer is accepted. If a later batch in flight became the first, the retry of the failed
        one would be older than what is remembered, which librdkafka takes for stored.
        """
        failed = self._failed_firsts.get(producer.id)
        if failed is None or pending:
            return
        if producer.sequence > failed and producer.sequence >> EPOCH_BITS == failed >> EPOCH_BITS:
            raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} comes after {failed}, which failed")
        del self._failed_firsts[producer.id]

    def refuse(self, appends: Iterable[QueuedAppend], producers: Producers) -> None:
        """Record that these appends failed: their log buffers and new producers must continue with them."""
        for producer in (append.producer for append in appends if append.producer and append.producer.by_rows):
            if producers.last(producer.id) is None:
                first = self._failed_firsts.get(producer.id, producer.sequence)
                self._failed_firsts[producer.id] = first_refused(first, producer.sequence)
        while len(self._failed_firsts) > MAX_FAILED_FIRSTS:
            self._failed_firsts.popitem(last=False)
        for origin in (append.origin for append in appends if append.origin.buffer):
            self._refused[origin.buffer] = max(origin.begin, self._refused.get(origin.buffer, 0))


def first_refused(*numbers: int) -> int:
    """Return which of the refused numbers of a producer is sent again first: of the latest epoch, the lowest one."""
    return min(numbers, key=lambda number: (-(number >> EPOCH_BITS), number))


def _checksum(body: Body) -> int:
    return row_format.checksum(body) if isinstance(body, Rows) else checksum(body)


def _expected_append(first: QueuedAppend) -> StoredAppend:
    """Return the description of an append of this group, which has no offset yet."""
    sequence = first.producer.sequence if first.producer else 0
    return StoredAppend(sequence, -1, first.body.num_rows, 0, first.checksum)


def _find_stored(
    producer: ProducerSequence, producers: Producers, pending: Mapping[int, QueuedAppend]
) -> StoredAppend | None:
    """Return the stored append with this number; None if it is the next number. Raises OutOfSequence."""
    last = max(pending, default=None)
    if last is None:
        return producers.stored_append(producer)
    if producer.sequence > last:
        check_next(producer, last, last, pending[last].body.num_rows)
        return None
    stored = producers.stored_append(producer)
    if stored is None:
        raise OutOfSequence(f"producer {producer.id!r}: {producer.sequence} comes after {last}")
    return stored


def answer_duplicates(selection: Deduplicated, end: int, durability: Durability) -> None:
    """Answer the appends that needed no storing; ``end`` is the end of the topic. The fresh ones are answered
    already.
    """
    for append in selection.stored:
        append.future.set_result(Appended(end, 0, NO_TIMES, durability))
    for append, first in selection.again:
        append.future.set_result(replace(first.future.result(), is_repeated=True))

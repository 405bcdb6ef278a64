"""The promises of the pipe to its senders and readers, and the checks that it keeps them.

Each message is unique, so that every copy of it can be counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.log import Gap

Row = tuple[int, bytes]
"""Timestamp in microseconds, and payload."""


class Broken(AssertionError):
    """A broken promise."""


def offsets_in(gaps: Iterable[Gap]) -> set[int]:
    """Return all offsets in gaps."""
    return {offset for gap in gaps for offset in range(gap.begin, gap.end)}


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Row]]:
    """Yield offset and row of all rows."""
    for batch in batches:
        offsets, payloads = (batch.column(name).to_pylist() for name in ("offset", "payload"))
        timestamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
        yield from zip(offsets, zip(timestamps, payloads, strict=True), strict=True)


@dataclass(slots=True, eq=False)
class Sent:
    """Messages of one sender that are stored together, and the outcomes of its attempts to send them.

    ``acknowledged`` counts answers, ``uncertain`` attempts without an answer. ``once``: retries are recognised.
    """

    topic: str
    payloads: list[bytes]
    once: bool
    acknowledged: int = 0
    uncertain: int = 0

    @property
    def least(self) -> int:
        """The copies that must be stored."""
        return min(self.acknowledged, 1) if self.once else self.acknowledged

    @property
    def most(self) -> int:
        """The copies that may be stored."""
        attempts = self.acknowledged + self.uncertain
        return min(attempts, 1) if self.once else attempts


@dataclass(slots=True)
class Published:
    """Messages that a listener wrote to its log buffer: in complete frames, and in frames within which it died.

    ``spared`` are messages that are in the total after a power cut which took their frames.
    """

    name: str
    complete: int = 0
    uncertain: int = 0
    spared: int = 0


@dataclass(slots=True)
class Promises:
    """The model of a whole run. Retention drops rows of the topics ``expiring``; those ``written`` are not synced."""

    expiring: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    sent: list[Sent] = field(default_factory=list)
    transactions: list[list[Sent]] = field(default_factory=list)
    rows: dict[str, dict[int, Row]] = field(default_factory=lambda: defaultdict(dict))
    """Every row that a reader saw, by topic and offset."""
    acknowledged: dict[str, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    cursors: dict[tuple[str, str], tuple[int | None, ...]] = field(default_factory=dict)
    """The possible offsets of a cursor: the last committed one or None, and each offset without an answer."""
    damages: int = 0
    """Flipped bits, and power cuts that took what lying syncs had claimed."""
    shortened: set[str] = field(default_factory=set)
    """Topics that lost rows at their end, of which nothing on the disk tells."""
    has_lies: bool = False
    has_lost_books: bool = False
    """Whether lying syncs lost counts: the books may not close, and the rebuilt balance may differ from them."""
    has_jumped: bool = False
    power_cuts: int = 0
    lost: int = 0
    """Rows that a power cut took together with a flipped bit or lying syncs."""

    def acknowledge(self, sent: Sent, first: int | None = None) -> None:
        """Record an answer, with the first offset if it names one."""
        sent.acknowledged += 1
        if first is not None:
            self.check_offset(sent, first)

    def check_offset(self, sent: Sent, first: int) -> None:
        """Record the first offset of an answer, also one that reaches no sender. Raises Broken."""
        for offset, payload in enumerate(sent.payloads, first):
            previous = self.acknowledged[sent.topic].setdefault(offset, payload)
            if previous != payload:
                raise Broken(f"offset {offset} of {sent.topic} was given to {previous!r} and to {payload!r}")

    def cut_power(self) -> None:
        """Forget promises that hold only as long as the machine runs; a row that was read is synced in any topic."""
        self.power_cuts += 1
        for sent in self.sent:
            if sent.topic in self.written:
                sent.uncertain += sent.acknowledged
                sent.acknowledged = 0
        for topic in self.written:
            self.acknowledged.pop(topic, None)

    def lose(self, topic: str, rows: Mapping[int, bytes]) -> None:
        """Forget the promises for rows (payload by offset) that a flipped bit and a power cut took together."""
        self.lost += len(rows)
        self.shortened.add(topic)
        for offset in rows:
            self.rows[topic].pop(offset, None)
            self.acknowledged[topic].pop(offset, None)
        for sent in self.sent:
            if sent.topic == topic and not set(rows.values()).isdisjoint(sent.payloads):
                sent.uncertain += sent.acknowledged
                sent.acknowledged = 0

    def lose_end(self, topic: str, begin: int, end: int, stored: set[bytes]) -> None:
        """Forget the promises for rows [begin, end), and for messages that are not among those ``stored``."""
        self.lost += max(end - begin, 0)
        self.shortened.add(topic)
        for offsets in (self.rows[topic], self.acknowledged[topic]):
            for offset in [offset for offset in offsets if offset >= begin]:
                del offsets[offset]
        for sent in self.sent:
            if sent.topic == topic and not stored.issuperset(sent.payloads):
                sent.uncertain += sent.acknowledged
                sent.acknowledged = 0

    def see(
        self,
        topic: str,
        batches: Iterable[pa.RecordBatch],
        reader: str,
        begin: int,
        end: int,
        gaps: Callable[[], Iterable[Gap]],
    ) -> int | None:
        """Compare what ``reader`` got with what was seen before; return the offset after it, None for nothing.

        Each offset from ``begin`` to the last row, or to ``end`` without any row, is a row or in one of ``gaps``.
        """
        following = None
        offsets: set[int] = set()
        for offset, row in rows_of(batches):
            if following is not None and offset < following:
                raise Broken(f"{reader}: offset {offset} of {topic} after {following - 1}")
            following = offset + 1
            offsets.add(offset)
            self._see_row(topic, offset, row, reader)
        skipped = set(range(begin, end if following is None else following)) - offsets
        if skipped and (lost := skipped - offsets_in(gaps())):
            raise Broken(f"{reader}: offset {min(lost)} of {topic} is skipped, and in no gap")
        return following

    def _see_row(self, topic: str, offset: int, row: Row, reader: str) -> None:
        before = self.rows[topic].setdefault(offset, row)
        if before != row:
            raise Broken(f"{reader}: offset {offset} of {topic} was {before}, and is {row}")
        promised = self.acknowledged[topic].get(offset, row[1])
        if promised != row[1]:
            raise Broken(f"{reader}: offset {offset} of {topic} was acknowledged for {promised!r}, and is {row[1]!r}")
        earlier = self.rows[topic].get(offset - 1)
        if earlier and earlier[0] >= row[0] and not self.has_jumped:
            raise Broken(f"{reader}: timestamp {row[0]} at offset {offset} of {topic} follows {earlier[0]}")

    def check_topic(self, topic: str, rows: Mapping[int, Row], gaps: list[Gap], end: int) -> None:
        """Check all stored rows of a topic. Raises Broken."""
        missing = [offset for gap in gaps for offset in range(gap.begin, gap.end)]
        if sorted([*rows, *missing]) != list(range(end)):
            raise Broken(f"{topic}: rows and gaps do not cover each offset below {end} once: gaps {gaps}")
        self.check_gaps(topic, gaps)
        excused = set(missing)
        for offset, row in self.rows[topic].items():
            if offset not in excused and rows.get(offset) != row:
                raise Broken(f"offset {offset} of {topic} was read as {row}, and is now {rows.get(offset)}")
        for offset, payload in self.acknowledged[topic].items():
            if offset not in excused and (offset not in rows or rows[offset][1] != payload):
                raise Broken(f"offset {offset} of {topic} was acknowledged for {payload!r}, and is {rows.get(offset)}")
        self._check_copies(topic, rows, bool(missing))

    def check_gaps(self, topic: str, gaps: Iterable[Gap]) -> None:
        """Check that each gap has a reason that may occur: a reader passes its rows for good. Raises Broken.

        A power cut may take one of the batches that are written together, and spare the next one, which recovery keeps:
        nothing on the disk tells it from an acknowledged one.
        """
        for gap in gaps:
            promised = self.rows[topic].keys() | self.acknowledged[topic].keys()
            is_torn = self.power_cuts > 0 and promised.isdisjoint(range(gap.begin, gap.end))
            if gap.reason == "corrupt" and not self.damages and not is_torn:
                raise Broken(f"{topic}: a corrupt gap without damage: {gap}")
            # Lying syncs may lose a segment, or the record of its expiry, and spare its index: as if a user removed it.
            is_lost = gap.reason == "corrupt" or (gap.reason == "deleted" and self.has_lies)
            if not is_lost and (topic not in self.expiring or gap.reason == "deleted"):
                raise Broken(f"{topic}: an unexpected gap: {gap}")

    def check_expired(self, topic: str, gaps: Iterable[Gap], newest: int) -> None:
        """Check that no row that a reader saw expired with a timestamp after ``newest`` (microseconds)."""
        if self.has_jumped:
            return
        for gap in gaps:
            if gap.reason in ("corrupt", "deleted"):
                continue
            for offset in range(gap.begin, gap.end):
                row = self.rows[topic].get(offset)
                if row and row[0] > newest:
                    raise Broken(f"{topic}: offset {offset} of {row[0]} expired before its time, {newest}: {gap}")

    def check_listener(self, listener: Published, stored: int, dropped: int, corrupt: int = 0) -> None:
        """Check that each message that a listener published is stored, or counted as dropped. Raises Broken.

        Drops whose counts a power cut took show in the totals of later frames, as ``corrupt`` messages; so do messages
        of frames within which a receiver died.
        """
        if self.damages:
            return  # counts of dropped messages may be in the damage
        # Only the log knows whether it has stored frames that a power cut took: dropped later frames count them again.
        twice = min(listener.spared, corrupt) if dropped else 0
        has_surplus = stored + dropped + corrupt - twice > listener.complete + listener.uncertain
        # A power cut takes also the counts of frames that were dropped since the last writeback, with their successors.
        is_short = stored + dropped + corrupt < listener.complete and not self.power_cuts
        if has_surplus or is_short:
            raise Broken(f"{stored} messages are stored, {dropped} dropped, and {corrupt} corrupt: not {listener}")

    def _check_copies(self, topic: str, rows: Mapping[int, Row], has_gaps: bool) -> None:
        copies = Counter(payload for _, payload in rows.values())
        expected: dict[bytes, tuple[int, int]] = {}
        for sent in self.sent:
            if sent.topic == topic:
                expected |= dict.fromkeys(sent.payloads, (sent.least, sent.most))
        for payload, (least, most) in expected.items():
            # A row in a gap is gone, and its payload is not in the gap's record.
            if not (0 if has_gaps else least) <= copies[payload] <= most:
                raise Broken(f"{topic}: {payload[:40]!r} is stored {copies[payload]} times, not {least} to {most}")
        if strange := copies.keys() - expected.keys():
            raise Broken(f"{topic}: rows that nobody sent: {sorted(strange)[:3]}")

    def check_transactions(self, stored: Mapping[str, set[bytes]], with_gaps: set[str]) -> None:
        """Check that each transaction is stored as a whole or not at all. Raises Broken."""
        for parts in self.transactions:
            complete = [
                payload in stored[sent.topic]
                for sent in parts
                if sent.topic not in with_gaps | self.shortened
                for payload in sent.payloads
            ]
            if any(complete) and not all(complete):
                raise Broken(f"a transaction is stored in part: {[sent.payloads for sent in parts]}")

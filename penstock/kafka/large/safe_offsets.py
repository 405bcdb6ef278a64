"""Offsets of delivered messages: where to restart without loss, and what to commit.

The *starting offset* of a message is that of its first chunk. The *safe offset* of a message is the smallest starting
offset of the messages that were incomplete when it was delivered, or its own offset + 1. A consumer that restarts
there receives everything that follows the message (DeliveredMessageOffsetTracker and the README of li-apache-kafka-
clients).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict

from penstock.kafka.errors import OffsetNotTracked

DEFAULT_TRACKED = 500
"""Default of ``max.tracked.messages.per.partition``, as in the Java library."""
INT64_LIMIT = 1 << 63
_LONG = re.compile(r"[+-]?\d+")
TopicAndPartition = tuple[str, int]
"""Topic and number of a partition."""


class DeliveredOffsets:
    """Starting and safe offsets of recently delivered messages, by partition.

    Limit: only messages whose offsets do not follow from their own offset take memory, the last ``max_tracked`` per
    partition.
    """

    def __init__(self, max_tracked: int = DEFAULT_TRACKED) -> None:
        self._max_tracked = max_tracked
        self._partitions: dict[TopicAndPartition, _TrackedPartition] = {}

    def track(self, partition: TopicAndPartition, offset: int, safe: int, start: int, delivered: bool = True) -> None:
        """Record a complete message; ``delivered`` is false if it was below the high watermark and left out."""
        self._tracked_partition(partition, offset).track(offset, safe, start, delivered)

    def track_run(self, partition: TopicAndPartition, first: int, last: int) -> None:
        """Record plain messages at ``first`` to ``last``, all delivered while no message was incomplete."""
        tracked = self._tracked_partition(partition, first)
        tracked.safe, tracked.delivered = last + 1, last

    def leave_out(self, partition: TopicAndPartition, offset: int) -> None:
        """Record a chunk that did not complete its message."""
        self._tracked_partition(partition, offset).other.add(offset)

    def _tracked_partition(self, partition: TopicAndPartition, offset: int) -> _TrackedPartition:
        tracked = self._partitions.get(partition)
        if tracked is None:
            tracked = self._partitions[partition] = _TrackedPartition(offset, self._max_tracked)
        return tracked

    def safe_offset(self, partition: TopicAndPartition, offset: int | None = None) -> int | None:
        """Return the safe offset of a partition, or of the message at ``offset``; None if nothing was read.

        A negative offset has no safe offset. Raises OffsetNotTracked.
        """
        tracked = self._partitions.get(partition)
        if tracked is None or (offset is not None and offset < 0):
            return None
        if offset is None:
            return tracked.safe
        return self._offsets_of_message(partition, tracked, offset)[0]

    def starting_offset(self, partition: TopicAndPartition, offset: int) -> int:
        """Return the starting offset of the message at ``offset``; ``offset`` before any delivery. Raises
        OffsetNotTracked.
        """
        tracked = self._partitions.get(partition)
        if tracked is None or tracked.delivered < 0:
            return offset
        return self._offsets_of_message(partition, tracked, offset)[1]

    def closest_delivered(self, partition: TopicAndPartition, up_to: int) -> int | None:
        """Return the offset of the last message delivered up to ``up_to``, or None. Raises OffsetNotTracked."""
        tracked = self._partitions.get(partition)
        if tracked is None or tracked.delivered < 0:
            return None
        if not tracked.earliest <= up_to <= tracked.delivered:
            raise _not_tracked(partition, tracked, up_to)
        closest = tracked.other.before(up_to)
        return None if closest < tracked.earliest else closest

    def delivered(self, partition: TopicAndPartition) -> int | None:
        """Return the offset of the last delivered message, or None."""
        tracked = self._partitions.get(partition)
        return None if tracked is None or tracked.delivered < 0 else tracked.delivered

    def earliest(self, partition: TopicAndPartition) -> int | None:
        """Return the earliest tracked offset; None if nothing was read."""
        tracked = self._partitions.get(partition)
        return None if tracked is None else tracked.earliest

    def safe_before(self, partition: TopicAndPartition, offset: int) -> int | None:
        """Return the safe offset of the message delivered last before ``offset``; None if it is the partition's last.

        Up to the first offset that was read, this is ``offset`` itself. Before the first delivered message the Java
        library takes ``offset``, too, and loses messages of which chunks precede it. Raises OffsetNotTracked.
        """
        tracked = self._partitions.get(partition)
        if tracked is None or offset <= tracked.first:
            return offset
        if offset == tracked.earliest:
            return tracked.safe_before_earliest
        previous = self.closest_delivered(partition, offset - 1)
        if previous is None:
            # All offsets before it are chunks, of messages that were completed later or are incomplete.
            return None if tracked.delivered < 0 else tracked.safe_before_earliest
        return None if previous == tracked.delivered else self.safe_offset(partition, previous)

    def watermark_span(self, partition: TopicAndPartition) -> int:
        """Return how far delivery is ahead of the safe offset: -1 with nothing incomplete, 0 if nothing was read."""
        tracked = self._partitions.get(partition)
        return 0 if tracked is None or tracked.delivered < 0 else tracked.delivered - tracked.safe

    def safe_offsets(self) -> dict[TopicAndPartition, int]:
        """Return the safe offset of each partition that was read."""
        return {partition: tracked.safe for partition, tracked in self._partitions.items()}

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget one partition, or all."""
        if partition is None:
            self._partitions.clear()
        else:
            self._partitions.pop(partition, None)

    @staticmethod
    def _offsets_of_message(partition: TopicAndPartition, tracked: _TrackedPartition, offset: int) -> tuple[int, int]:
        if not tracked.earliest <= offset <= tracked.delivered or offset in tracked.other:
            raise _not_tracked(partition, tracked, offset)
        return tracked.messages.get(offset, (offset + 1, offset))


def _not_tracked(partition: TopicAndPartition, tracked: _TrackedPartition, offset: int) -> OffsetNotTracked:
    first = tracked.other.after(tracked.earliest)
    return OffsetNotTracked(partition, offset, first, tracked.delivered, tracked.safe)


class _TrackedPartition:
    """Offsets of one partition: ``messages`` maps an offset to (safe, starting); ``other`` has offsets of chunks."""

    __slots__ = ("delivered", "earliest", "first", "messages", "most", "other", "safe", "safe_before_earliest")

    def __init__(self, offset: int, most: int) -> None:
        self.first = self.earliest = self.safe = self.safe_before_earliest = offset
        self.delivered = -1
        self.most = most
        self.messages: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self.other = OffsetRuns()

    def track(self, offset: int, safe: int, start: int, delivered: bool) -> None:
        self.safe = safe
        if delivered:
            self.delivered = offset
        # Fast path: an ordinary message follows from its offset and is not stored.
        if offset == start and safe == offset + 1:
            return
        self.messages[offset] = (safe, start)
        if len(self.messages) > self.most:
            oldest, (self.safe_before_earliest, _) = self.messages.popitem(last=False)
            self.earliest = oldest + 1
            # Limit: the offsets of chunks go with the message that was dropped, so a long run of chunks does not grow
            # forever.
            self.other.drop_below(oldest)


class OffsetRuns:
    """A set of offsets stored as runs without holes: a million consecutive chunks take one pair of numbers."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # inclusive

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset <= self._ends[index]

    def add(self, offset: int) -> None:
        """Add one offset."""
        index = bisect_right(self._starts, offset) - 1
        if index >= 0 and offset <= self._ends[index]:
            return
        joins_left = index >= 0 and self._ends[index] == offset - 1
        joins_right = index + 1 < len(self._starts) and self._starts[index + 1] == offset + 1
        if joins_left and joins_right:
            self._ends[index] = self._ends[index + 1]
            del self._starts[index + 1], self._ends[index + 1]
        # Fast path: offsets arrive in order, so nearly all extend the last run.
        elif joins_left:
            self._ends[index] = offset
        elif joins_right:
            self._starts[index + 1] = offset
        else:
            self._starts.insert(index + 1, offset)
            self._ends.insert(index + 1, offset)

    def before(self, offset: int) -> int:
        """Return the largest offset up to ``offset`` that is not in the set."""
        index = bisect_right(self._starts, offset) - 1
        return self._starts[index] - 1 if index >= 0 and offset <= self._ends[index] else offset

    def after(self, offset: int) -> int:
        """Return the smallest offset from ``offset`` on that is not in the set."""
        index = bisect_right(self._starts, offset) - 1
        return self._ends[index] + 1 if index >= 0 and offset <= self._ends[index] else offset

    def drop_below(self, offset: int) -> None:
        """Remove offsets smaller than ``offset``."""
        dropped = bisect_right(self._starts, offset - 1)
        if dropped and self._ends[dropped - 1] >= offset:
            dropped -= 1
            self._starts[dropped] = offset
        del self._starts[:dropped], self._ends[:dropped]


def wrap_metadata(offset: int, metadata: str | None) -> str:
    """Return the metadata of a commit: the user's offset, a comma, and the user's text ("" if absent)."""
    return f"{offset},{metadata or ''}"


def offset_in(metadata: str | None) -> int | None:
    """Return the user's offset in a commit's metadata; None if another client committed."""
    head, comma, _ = (metadata or "").partition(",")
    if not comma or not _LONG.fullmatch(head):
        return None
    offset = int(head)
    return offset if -INT64_LIMIT <= offset < INT64_LIMIT else None


def metadata_in(metadata: str | None) -> str | None:
    """Return the user's text in a commit's metadata: after the first comma, or all without a comma."""
    if metadata is None:
        return None
    head, comma, user_text = metadata.partition(",")
    return user_text if comma else head

"""Offsets of delivered messages: where to start again so that nothing is lost, and what is committed.

The *starting offset* of a message is that of its first segment. The *safe offset* of a message is the smallest
starting offset of the messages that were incomplete when it was delivered, or its own offset + 1: who starts again
there gets everything that came after it (seed: "Consume large messages"; specification B1, tracker).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict

from penstock.kafka.errors import OffsetNotTracked

DEFAULT_TRACKED = 500
LONGEST = 1 << 63
_LONG = re.compile(r"[+-]?\d+")
TopicAndPartition = tuple[str, int]
"""Topic and number of a partition."""


class DeliveredOffsets:
    """Starting and safe offsets of the messages delivered lately, by partition.

    Only messages whose offsets do not follow from their own offset take a place; of these the last ``most_tracked``
    of each partition are remembered.
    """

    def __init__(self, most_tracked: int = DEFAULT_TRACKED) -> None:
        self._most = most_tracked
        self._partitions: dict[TopicAndPartition, _Tracked] = {}

    def track(self, partition: TopicAndPartition, offset: int, safe: int, start: int, delivered: bool = True) -> None:
        """A whole message; ``delivered`` is false where it was below the high watermark and left out."""
        self._of(partition, offset).track(offset, safe, start, delivered)

    def track_run(self, partition: TopicAndPartition, first: int, last: int) -> None:
        """Plain messages at ``first`` to ``last``, all delivered while nothing was incomplete."""
        tracked = self._of(partition, first)
        tracked.safe, tracked.delivered = last + 1, last

    def leave_out(self, partition: TopicAndPartition, offset: int) -> None:
        """A record that delivered nothing: a segment that did not complete its message."""
        self._of(partition, offset).other.add(offset)

    def _of(self, partition: TopicAndPartition, offset: int) -> _Tracked:
        tracked = self._partitions.get(partition)
        if tracked is None:
            tracked = self._partitions[partition] = _Tracked(offset, self._most)
        return tracked

    def safe_offset(self, partition: TopicAndPartition, offset: int | None = None) -> int | None:
        """The safe offset of a partition, or of the message at ``offset``; None where nothing was read.

        A negative offset has none either. Raises OffsetNotTracked.
        """
        tracked = self._partitions.get(partition)
        if tracked is None or (offset is not None and offset < 0):
            return None
        if offset is None:
            return tracked.safe
        return self._known(partition, tracked, offset)[0]

    def starting_offset(self, partition: TopicAndPartition, offset: int) -> int:
        """The starting offset of the message at ``offset``; before any delivery ``offset``. Raises OffsetNotTracked."""
        tracked = self._partitions.get(partition)
        if tracked is None or tracked.delivered < 0:
            return offset
        return self._known(partition, tracked, offset)[1]

    def closest_delivered(self, partition: TopicAndPartition, up_to: int) -> int | None:
        """The offset of the last message delivered up to ``up_to``; None where none was. Raises OffsetNotTracked."""
        tracked = self._partitions.get(partition)
        if tracked is None or tracked.delivered < 0:
            return None
        if not tracked.earliest <= up_to <= tracked.delivered:
            raise _unknown(partition, tracked, up_to)
        closest = tracked.other.before(up_to)
        return None if closest < tracked.earliest else closest

    def delivered(self, partition: TopicAndPartition) -> int | None:
        """The offset of the last message delivered; None where none was."""
        tracked = self._partitions.get(partition)
        return None if tracked is None or tracked.delivered < 0 else tracked.delivered

    def earliest(self, partition: TopicAndPartition) -> int | None:
        """The earliest offset of which something is known; None where nothing was read."""
        tracked = self._partitions.get(partition)
        return None if tracked is None else tracked.earliest

    def watermark_span(self, partition: TopicAndPartition) -> int:
        """How far delivery is ahead of the safe offset: -1 where nothing is incomplete, 0 where nothing was read."""
        tracked = self._partitions.get(partition)
        return 0 if tracked is None or tracked.delivered < 0 else tracked.delivered - tracked.safe

    def safe_offsets(self) -> dict[TopicAndPartition, int]:
        """The safe offset of each partition that was read."""
        return {partition: tracked.safe for partition, tracked in self._partitions.items()}

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget one partition, or all."""
        if partition is None:
            self._partitions.clear()
        else:
            self._partitions.pop(partition, None)

    @staticmethod
    def _known(partition: TopicAndPartition, tracked: _Tracked, offset: int) -> tuple[int, int]:
        if not tracked.earliest <= offset <= tracked.delivered or offset in tracked.other:
            raise _unknown(partition, tracked, offset)
        return tracked.messages.get(offset, (offset + 1, offset))


def _unknown(partition: TopicAndPartition, tracked: _Tracked, offset: int) -> OffsetNotTracked:
    first = tracked.other.after(tracked.earliest)
    return OffsetNotTracked(partition, offset, first, tracked.delivered, tracked.safe)


class _Tracked:
    """One partition: ``messages`` are (safe, starting) offsets by offset, ``other`` offsets that are no message's."""

    __slots__ = ("delivered", "earliest", "messages", "most", "other", "safe")

    def __init__(self, offset: int, most: int) -> None:
        self.earliest = self.safe = offset
        self.delivered = -1
        self.most = most
        self.messages: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self.other = Runs()

    def track(self, offset: int, safe: int, start: int, delivered: bool) -> None:
        self.safe = safe
        if delivered:
            self.delivered = offset
        if offset == start and safe == offset + 1:
            return
        self.messages[offset] = (safe, start)
        if len(self.messages) > self.most:
            oldest, _ = self.messages.popitem(last=False)
            self.earliest = oldest + 1
            self.other.drop_below(oldest)


class Runs:
    """A set of offsets, kept as runs without holes, so that a million segments in a row take no room."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # inclusive

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset <= self._ends[place]

    def add(self, offset: int) -> None:
        """Add one offset; quick where it is beyond all others."""
        place = bisect_right(self._starts, offset) - 1
        if place >= 0 and offset <= self._ends[place]:
            return
        joins_left = place >= 0 and self._ends[place] == offset - 1
        joins_right = place + 1 < len(self._starts) and self._starts[place + 1] == offset + 1
        if joins_left and joins_right:
            self._ends[place] = self._ends[place + 1]
            del self._starts[place + 1], self._ends[place + 1]
        elif joins_left:
            self._ends[place] = offset
        elif joins_right:
            self._starts[place + 1] = offset
        else:
            self._starts.insert(place + 1, offset)
            self._ends.insert(place + 1, offset)

    def before(self, offset: int) -> int:
        """The largest offset up to ``offset`` that is not in the set."""
        place = bisect_right(self._starts, offset) - 1
        return self._starts[place] - 1 if place >= 0 and offset <= self._ends[place] else offset

    def after(self, offset: int) -> int:
        """The smallest offset from ``offset`` on that is not in the set."""
        place = bisect_right(self._starts, offset) - 1
        return self._ends[place] + 1 if place >= 0 and offset <= self._ends[place] else offset

    def drop_below(self, offset: int) -> None:
        """Take out what is smaller than ``offset``."""
        gone = bisect_right(self._starts, offset - 1)
        if gone and self._ends[gone - 1] >= offset:
            gone -= 1
            self._starts[gone] = offset
        del self._starts[:gone], self._ends[:gone]


def wrap_metadata(offset: int, metadata: str | None) -> str:
    """The metadata of a commit: the user's offset, a comma, and his own text ("" where he gave none)."""
    return f"{offset},{metadata or ''}"


def offset_in(metadata: str | None) -> int | None:
    """The user's offset in a commit's metadata; None where another client committed."""
    head, comma, _ = (metadata or "").partition(",")
    if not comma or not _LONG.fullmatch(head):
        return None
    offset = int(head)
    return offset if -LONGEST <= offset < LONGEST else None


def metadata_in(metadata: str | None) -> str | None:
    """The user's text in a commit's metadata: what follows the first comma, or all where there is none."""
    if metadata is None:
        return None
    head, comma, rest = metadata.partition(",")
    return rest if comma else head

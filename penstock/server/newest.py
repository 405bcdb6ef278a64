"""What was stored last in the topics that are followed: who stands at the end of one needs no look at its files."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Iterator

import pyarrow as pa

from penstock.log import StoredBatch, Topic

MOST, LARGEST = 64, 16 << 10
"""Batches of a topic that are kept, and bytes of one; where more comes at once, to read the files is cheap."""


class Newest:
    """The newest small batches of one topic. ``add`` is called on the threads that commit, one at a time."""

    def __init__(self) -> None:
        self._kept: deque[StoredBatch] = deque(maxlen=MOST)

    def add(self, stored: StoredBatch) -> None:
        """A batch was stored."""
        if stored.size <= LARGEST:
            self._kept.append(stored)

    def behind(self, offset: int) -> list[pa.RecordBatch]:
        """Batches that go on at ``offset`` without a break; none where what begins there is not kept."""
        found = []
        for stored in list(self._kept):  # one call: others may add to it
            if stored.base == offset:
                found.append(stored.batch)
                offset = stored.end
        return found


class NewestOfTopics:
    """Kept for those topics that somebody follows. Lives on one event loop."""

    def __init__(self) -> None:
        self._kept: dict[Topic, Newest] = {}
        self._followers: Counter[Topic] = Counter()

    @contextlib.contextmanager
    def of(self, topic: Topic) -> Iterator[Newest]:
        """What is kept of ``topic``, from now on, while it is followed."""
        if topic not in self._kept:
            self._kept[topic] = Newest()
            topic.subscribe(self._kept[topic].add)
        self._followers[topic] += 1
        try:
            yield self._kept[topic]
        finally:
            self._followers[topic] -= 1
            if not self._followers[topic]:
                del self._followers[topic]
                topic.unsubscribe(self._kept.pop(topic).add)

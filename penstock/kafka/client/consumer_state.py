"""Everything a consumer of large messages knows, without I/O: what to deliver, where to seek, what to commit.

Who drives it does what it answers with a plain consumer whose own offsets (``raw``) are those of records:

* after each poll ``process(records)`` gives the messages; where ``rewinds()`` is not empty the plain consumer seeks
  there at once, and the next poll (or this one, if it gave no messages) begins with ``take_failure(active)``: if that
  is not None, it seeks to each of its ``resume`` offsets and raises it;
* ``seek``, ``seek_to_committed``, ``reset`` and ``out_of_range`` give the raw offset to seek to;
* ``commit`` and ``commit_offsets`` give what to commit, offset and metadata, as the broker is to store them;
* ``revoked`` and ``assigned`` follow rebalances (commit before the first where offsets are committed automatically).

Rules and cases: seed, "Consume large messages" and "About seek()"; specification B1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from penstock.kafka.errors import NoCommittedOffset, Partition, RecordFailed, RecordsFailed
from penstock.kafka.large.assembler import AssemblerSnapshot
from penstock.kafka.large.record_processor import Committed, Processor
from penstock.kafka.large.safe_offsets import TopicAndPartition, metadata_in, offset_in, wrap_metadata

PositionOf = Callable[[TopicAndPartition], int]
"""The plain consumer's own position in a partition."""


class ConsumerState:
    """The state of one consumer. ``processor`` asks the broker what is committed, and may block."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._assembler, self._tracker, self._committed = processor.assembler, processor.tracker, processor.committed
        self._failures: dict[TopicAndPartition, RecordFailed] = {}
        self._revoked: set[TopicAndPartition] = set()

    # What is delivered

    def process(self, records: list[Any]) -> list[Any]:
        """The messages in polled records, which is emptied (see ``Processor.process``)."""
        processed = self._processor.process(records)
        self._failures = processed.failures
        return processed.records

    def rewinds(self) -> dict[TopicAndPartition, int]:
        """Where to seek to after a poll: the offsets of records that could not be processed."""
        return {partition: failure.offset for partition, failure in self._failures.items()}

    def take_failure(self, active: Collection[TopicAndPartition] = ()) -> RecordsFailed | None:
        """What to raise for the partitions that are not paused; of all partitions where none is named.

        What others had is forgotten: they were rewound, and meet it again.
        """
        failures, self._failures = self._failures, {}
        taken = [failure for partition, failure in failures.items() if not active or partition in active]
        return RecordsFailed(taken) if taken else None

    @property
    def skipped(self) -> int:
        """Records that a deserializer left out."""
        return self._processor.skipped

    def snapshot(self) -> AssemblerSnapshot:
        """What is in progress and what was dropped, for the balance and the console."""
        return self._assembler.snapshot()

    # Seeking

    def seek(self, partition: TopicAndPartition, offset: int) -> int | None:
        """Where to seek to, so that messages from ``offset`` on are delivered; None: stay. Raises OffsetNotTracked.

        Within the tracked offsets this is the place from which no message is lost; forward, and before anything was
        read, it is ``offset`` itself; the committed offset is taken with what was committed beside it.
        """
        self._failures = {}
        delivered = self._tracker.delivered(partition)
        if delivered is not None and offset == delivered + 1:
            return None
        committed = self._committed(partition)
        if committed is not None and _user_offset(committed) == offset:
            return self._to_committed(partition, committed)
        raw = offset if delivered is None or offset > delivered else self._back_to(partition, offset)
        self._start_at(partition, offset)
        return raw

    def _back_to(self, partition: TopicAndPartition, offset: int) -> int:
        closest = self._tracker.closest_delivered(partition, offset)
        if closest is None:
            earliest = self._tracker.earliest(partition)
            return offset if earliest is None else earliest
        safe = self._tracker.safe_offset(partition, closest)
        safe = offset if safe is None else safe
        return min(safe, self._tracker.starting_offset(partition, offset)) if closest == offset else safe

    def seek_to_committed(self, partition: TopicAndPartition) -> int:
        """Where to seek to, so that reading goes on behind the last commit. Raises NoCommittedOffset."""
        self._failures = {}
        committed = self._committed(partition)
        if committed is None:
            raise NoCommittedOffset(f"nothing is committed of {Partition(*partition)}")
        return self._to_committed(partition, committed)

    def _to_committed(self, partition: TopicAndPartition, committed: Committed) -> int:
        self._start_at(partition, _user_offset(committed))
        return committed.offset

    def reset(self, partition: TopicAndPartition) -> None:
        """The plain consumer seeks to the beginning or the end: everything from there on is delivered."""
        self._failures = {}
        self._start_at(partition, 0)

    def out_of_range(self, partition: TopicAndPartition, fetched: int, low: int, high: int) -> int:
        """Where to go on when ``fetched`` is not there (``auto.offset.reset=liclosest``): the closest to it."""
        raw = min(max(fetched, low), high)
        self._start_at(partition, max(raw - 1, 0))
        return raw

    def _start_at(self, partition: TopicAndPartition, watermark: int) -> None:
        self._processor.clear(partition)
        self._processor.watermark(partition).current = watermark

    # Committing

    def commit(self, assigned: Iterable[TopicAndPartition], position: PositionOf) -> dict[TopicAndPartition, Committed]:
        """What to commit of everything delivered up to now; of partitions never read nothing."""
        known = self._processor.watermarks()
        offsets: dict[TopicAndPartition, Committed] = {}
        for partition in assigned:
            delivered = self._tracker.delivered(partition)
            if delivered is not None:
                offsets[partition] = Committed(delivered + 1, "")
            elif self._tracker.earliest(partition) is not None or partition in known:
                offsets[partition] = Committed(position(partition), "")
        return self._safe(offsets, keep_watermark=True)

    def commit_offsets(self, offsets: Mapping[TopicAndPartition, Committed]) -> dict[TopicAndPartition, Committed]:
        """What to commit for the user's own offsets (of delivered messages, + 1). Raises OffsetNotTracked."""
        return self._safe(offsets, keep_watermark=False)

    def _safe(
        self, offsets: Mapping[TopicAndPartition, Committed], keep_watermark: bool
    ) -> dict[TopicAndPartition, Committed]:
        return {partition: self.to_commit(partition, given, keep_watermark) for partition, given in offsets.items()}

    def to_commit(self, partition: TopicAndPartition, given: Committed, keep_watermark: bool) -> Committed:
        """The safe offset for ``given``, with the user's offset (or the high watermark to keep) in the metadata."""
        mark = self._processor.watermark(partition)
        offset = given.offset
        safe = self._safe_for(partition, offset)
        if not keep_watermark:
            watermark = offset
        elif safe == offset and mark.stored != -1 and mark.committed == safe:
            watermark = max(mark.current, mark.stored)  # nothing was read since
        else:
            watermark = max(offset, mark.current)
        return Committed(min(safe, offset), wrap_metadata(watermark, given.metadata))

    def _safe_for(self, partition: TopicAndPartition, offset: int) -> int:
        earliest = self._tracker.earliest(partition)
        if earliest is None or offset <= earliest:
            return offset
        previous = self._tracker.closest_delivered(partition, offset - 1)
        latest = self._tracker.delivered(partition)
        if previous is None or previous == latest:  # what was dropped meanwhile holds back no longer
            return self._assembler.safe_offset(partition, offset if latest is None else latest)
        safe = self._tracker.safe_offset(partition, previous)
        return offset if safe is None else safe

    # What is known

    def safe_offset(self, partition: TopicAndPartition, offset: int | None = None) -> int | None:
        """The safe offset of a partition, or of a delivered message; None where nothing was read."""
        return self._tracker.safe_offset(partition, offset)

    def safe_offsets(self) -> dict[TopicAndPartition, int]:
        """The safe offsets of all partitions that were read."""
        return self._tracker.safe_offsets()

    def committed(self, partition: TopicAndPartition) -> Committed | None:
        """The user's own offset and metadata of the last commit; those of another client as they are."""
        stored = self._committed(partition)
        if stored is None or offset_in(stored.metadata) is None:
            return stored
        return Committed(_user_offset(stored), metadata_in(stored.metadata))

    def committed_safe_offset(self, partition: TopicAndPartition) -> int | None:
        """The safe offset of the last commit; None where nothing was committed, or without metadata."""
        stored = self._committed(partition)
        return stored.offset if stored is not None and stored.metadata else None

    # Assignment

    def revoked(self, partitions: Iterable[TopicAndPartition]) -> None:
        """Partitions go, perhaps to come back at once: what is buffered of them stays until ``assigned``."""
        self._revoked = set(partitions)
        self._processor.forget_watermarks(list(self._revoked))

    def assigned(self, partitions: Iterable[TopicAndPartition]) -> None:
        """Partitions came: of those that went and did not come back, nothing is kept."""
        gone, self._revoked = self._revoked - set(partitions), set()
        for partition in gone:
            self.clear(partition)

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget one partition, or all: unsubscribed, or no longer assigned."""
        self._processor.clear(partition)
        for one in [partition] if partition is not None else list(self._failures):
            self._failures.pop(one, None)


def _user_offset(committed: Committed) -> int:
    offset = offset_in(committed.metadata)
    return committed.offset if offset is None else offset

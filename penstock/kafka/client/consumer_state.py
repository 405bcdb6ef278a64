"""The state of a consumer of large messages, without I/O: what to deliver, where to seek, what to commit.

The caller owns a plain consumer, whose offsets (``raw``) count records, and follows this protocol:

* After each poll ``process(records)`` returns messages. If ``rewinds()`` is not empty, the plain consumer seeks there
  at once. The next poll (or this one, without messages) starts with ``take_failure(active)``: if that is not None, the
  caller seeks to each of its ``resume`` offsets and raises it.
* ``seek``, ``seek_to_committed``, ``reset`` and ``out_of_range`` return the raw offset to seek to.
* ``commit`` and ``commit_offsets`` return offset and metadata to store at the broker.
* ``revoked`` and ``assigned`` follow rebalances; with automatic commits, commit before ``revoked``.

The rules follow LiKafkaConsumerImpl in li-apache-kafka-clients (README and MessageAssemblerImpl).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from penstock.kafka.errors import NoCommittedOffset, OffsetNotTracked, Partition, RecordFailed, RecordsFailed
from penstock.kafka.large.assembler import AssemblerSnapshot
from penstock.kafka.large.record_processor import Committed, Processor
from penstock.kafka.large.safe_offsets import TopicAndPartition, metadata_in, offset_in, wrap_metadata

PositionOf = Callable[[TopicAndPartition], int]
"""Returns the plain consumer's position in a partition."""


class ConsumerState:
    """The state of one consumer; not thread-safe. ``processor`` fetches commits from the broker and may block."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._assembler, self._tracker, self._committed = processor.assembler, processor.tracker, processor.committed
        self._failures: dict[TopicAndPartition, RecordFailed] = {}
        self._revoked: set[TopicAndPartition] = set()

    def process(self, records: list[Any]) -> list[Any]:
        """Return the messages in polled records, which is emptied (see ``Processor.process``)."""
        processed = self._processor.process(records)
        self._failures = processed.failures
        return processed.records

    def rewinds(self) -> dict[TopicAndPartition, int]:
        """Return the offsets of failed records, to seek to after a poll."""
        return {partition: failure.offset for partition, failure in self._failures.items()}

    def take_failure(self, active: Collection[TopicAndPartition] = ()) -> RecordsFailed | None:
        """Return the failure of partitions that are not paused, or of all if ``active`` is empty.

        Failures of other partitions are forgotten: those were rewound and fail again when read.
        """
        failures, self._failures = self._failures, {}
        raised = [failure for partition, failure in failures.items() if not active or partition in active]
        return RecordsFailed(raised) if raised else None

    @property
    def skipped(self) -> int:
        """Number of records that a deserializer skipped."""
        return self._processor.skipped

    def snapshot(self) -> AssemblerSnapshot:
        """Return buffered and dropped messages."""
        return self._assembler.snapshot()

    def seek(self, partition: TopicAndPartition, offset: int) -> int | None:
        """Return the raw offset that delivers messages from ``offset`` on; None: stay. Raises OffsetNotTracked.

        Within tracked offsets this is the safe offset; forward, and before any read, it is ``offset`` itself. The
        committed offset restores the state of its commit.
        """
        self._failures = {}
        delivered = self._tracker.delivered(partition)
        if delivered is not None and offset == delivered + 1:
            return None
        committed = self._committed(partition)
        if committed is not None and _user_offset(committed) == offset:
            return self._seek_to_commit(partition, committed)
        raw = offset if delivered is None or offset > delivered else self._safe_seek_target(partition, offset)
        self._restart_at(partition, offset)
        return raw

    def _safe_seek_target(self, partition: TopicAndPartition, offset: int) -> int:
        closest = self._tracker.closest_delivered(partition, offset)
        if closest is None:
            earliest = self._tracker.earliest(partition)
            before = None if earliest is None else self._tracker.safe_before(partition, earliest)
            return offset if before is None else before
        safe = self._tracker.safe_offset(partition, closest)
        safe = offset if safe is None else safe
        return min(safe, self._tracker.starting_offset(partition, offset)) if closest == offset else safe

    def seek_to_committed(self, partition: TopicAndPartition) -> int:
        """Return the raw offset from which reading continues after the last commit. Raises NoCommittedOffset."""
        self._failures = {}
        committed = self._committed(partition)
        if committed is None:
            raise NoCommittedOffset(f"{Partition(*partition)}: no offset is committed")
        return self._seek_to_commit(partition, committed)

    def _seek_to_commit(self, partition: TopicAndPartition, committed: Committed) -> int:
        self._restart_at(partition, _user_offset(committed))
        return committed.offset

    def reset(self, partition: TopicAndPartition) -> None:
        """Deliver everything: the plain consumer seeks to the beginning or the end."""
        self._failures = {}
        self._restart_at(partition, 0)

    def out_of_range(self, partition: TopicAndPartition, fetched: int, low: int, high: int) -> int:
        """Return the closest existing offset to ``fetched`` (``auto.offset.reset=liclosest``)."""
        raw = min(max(fetched, low), high)
        self._restart_at(partition, max(raw - 1, 0))
        return raw

    def _restart_at(self, partition: TopicAndPartition, watermark: int) -> None:
        self._processor.clear(partition)
        self._processor.watermark(partition).current = watermark

    def commit(self, assigned: Iterable[TopicAndPartition], position: PositionOf) -> dict[TopicAndPartition, Committed]:
        """Return the commits for everything delivered; partitions never read have none."""
        watermarks = self._processor.watermarks()
        offsets: dict[TopicAndPartition, Committed] = {}
        for partition in assigned:
            delivered = self._tracker.delivered(partition)
            if delivered is not None:
                offsets[partition] = Committed(delivered + 1, "")
            elif self._tracker.earliest(partition) is not None or partition in watermarks:
                offsets[partition] = Committed(position(partition), "")
        return self._with_safe_offsets(offsets, keep_watermark=True)

    def commit_offsets(self, offsets: Mapping[TopicAndPartition, Committed]) -> dict[TopicAndPartition, Committed]:
        """Return the commits for the user's own offsets (last delivered + 1). Raises OffsetNotTracked."""
        return self._with_safe_offsets(offsets, keep_watermark=False)

    def _with_safe_offsets(
        self, offsets: Mapping[TopicAndPartition, Committed], keep_watermark: bool
    ) -> dict[TopicAndPartition, Committed]:
        return {
            partition: self.to_commit(partition, requested, keep_watermark) for partition, requested in offsets.items()
        }

    def to_commit(self, partition: TopicAndPartition, requested: Committed, keep_watermark: bool) -> Committed:
        """Return the safe offset for a requested commit, with the user's offset (or high watermark) in the metadata."""
        read_from = self._processor.watermark(partition)
        offset = requested.offset
        safe = self._safe_commit_offset(partition, offset)
        if not keep_watermark:
            watermark = offset
        elif safe == offset and read_from.stored != -1 and read_from.committed == safe:
            watermark = max(read_from.current, read_from.stored)  # nothing was read since that commit
        else:
            watermark = max(offset, read_from.current)
        return Committed(min(safe, offset), wrap_metadata(watermark, requested.metadata))

    def commit_before(self, offsets: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, Committed]:
        """Return the commits from which everything from ``offsets`` on is delivered.

        Partitions whose offset is no longer tracked have none: their last commit stays. ``commit_offsets`` is the Java
        library's, which in front of the first message passes chunks of later ones.
        """
        commits = {}
        for partition, offset in offsets.items():
            try:
                safe = self._tracker.safe_before(partition, offset)
            except OffsetNotTracked:
                continue
            safe = self._safe_commit_offset(partition, offset) if safe is None else safe
            commits[partition] = Committed(min(safe, offset), wrap_metadata(offset, ""))
        return commits

    def _safe_commit_offset(self, partition: TopicAndPartition, offset: int) -> int:
        earliest = self._tracker.earliest(partition)
        if earliest is None or offset <= earliest:
            return offset
        previous = self._tracker.closest_delivered(partition, offset - 1)
        latest = self._tracker.delivered(partition)
        if previous is None or previous == latest:  # a message dropped since then no longer holds it back
            return self._assembler.safe_offset(partition, offset if latest is None else latest)
        safe = self._tracker.safe_offset(partition, previous)
        return offset if safe is None else safe

    def safe_offset(self, partition: TopicAndPartition, offset: int | None = None) -> int | None:
        """Return the safe offset of a partition, or of a delivered message; None if nothing was read."""
        return self._tracker.safe_offset(partition, offset)

    def safe_offsets(self) -> dict[TopicAndPartition, int]:
        """Return the safe offsets of all partitions that were read."""
        return self._tracker.safe_offsets()

    def committed(self, partition: TopicAndPartition) -> Committed | None:
        """Return the user's offset and metadata of the last commit; another client's unchanged."""
        stored = self._committed(partition)
        if stored is None or offset_in(stored.metadata) is None:
            return stored
        return Committed(_user_offset(stored), metadata_in(stored.metadata))

    def committed_safe_offset(self, partition: TopicAndPartition) -> int | None:
        """Return the safe offset of the last commit; None without a commit or without metadata."""
        stored = self._committed(partition)
        return stored.offset if stored is not None and stored.metadata else None

    def revoked(self, partitions: Iterable[TopicAndPartition]) -> None:
        """Note revoked partitions; their buffered chunks stay until ``assigned``, in case they return at once."""
        self._revoked = set(partitions)
        self._processor.forget_watermarks(list(self._revoked))

    def assigned(self, partitions: Iterable[TopicAndPartition]) -> None:
        """Forget revoked partitions that were not assigned again."""
        dropped, self._revoked = self._revoked - set(partitions), set()
        for partition in dropped:
            self.clear(partition)

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget one partition, or all: unsubscribed, or no longer assigned."""
        self._processor.clear(partition)
        for cleared in [partition] if partition is not None else list(self._failures):
            self._failures.pop(cleared, None)


def _user_offset(committed: Committed) -> int:
    offset = offset_in(committed.metadata)
    return committed.offset if offset is None else offset

"""Turn polled records into delivered messages: assembled, filtered by the high watermark, with their headers.

A record is any object with the methods of ``confluent_kafka.Message``. Delivered records are the polled objects, with
value and headers replaced for assembled messages. No I/O happens here; only the ``committed`` callback may block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from penstock.kafka.auditing.auditor import Auditor, AuditType, NoOpAuditor
from penstock.kafka.errors import Partition, RecordFailed, Skip
from penstock.kafka.large.assembler import Assembler
from penstock.kafka.large.chunks import Bytes, decode_chunk
from penstock.kafka.large.headers import (
    LARGE_MESSAGE,
    SAFE_OFFSET,
    Header,
    decode_large_message_header,
    drop_header,
    encode_large_message_header,
    encode_long,
    find_last,
)
from penstock.kafka.large.safe_offsets import DeliveredOffsets, TopicAndPartition, offset_in


class Record(Protocol):
    """The part of ``confluent_kafka.Message`` that is used."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> list[Header] | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def set_key(self, key: Any) -> None: ...
    def set_value(self, value: Any) -> None: ...
    def set_headers(self, headers: list[Header]) -> None: ...


class Committed(NamedTuple):
    """A committed offset of a partition with its metadata, as the broker stores them."""

    offset: int
    metadata: str | None


CommittedLookup = Callable[[TopicAndPartition], Committed | None]
"""Fetches the committed offset of a partition from the broker; None if there is none."""
Deserializer = Callable[[str, "Bytes | None", "list[Header] | None"], Any]
"""Maps topic, bytes and headers to a key or value. May raise ``Skip``."""


@dataclass(slots=True)
class DeliveredUpTo:
    """The high watermark of a partition: messages below ``current`` were delivered and are left out. -1: none.

    ``current`` is the offset last delivered, sought or committed; ``stored`` and ``committed`` are the user's offset
    and the safe offset of the commit from which reading started.
    """

    current: int = -1
    stored: int = -1
    committed: int = -1


@dataclass(slots=True)
class Processed:
    """The outcome of a poll: messages to deliver, and the first failure of each partition.

    Further records of a failed partition are left out; the caller rewinds to the failure.
    """

    records: list[Any] = field(default_factory=list)
    failures: dict[TopicAndPartition, RecordFailed] = field(default_factory=dict)


class Processor:
    """Processes records of any partitions, each partition in offset order. Owned by one consumer; not thread-safe."""

    def __init__(
        self,
        assembler: Assembler,
        tracker: DeliveredOffsets,
        committed: CommittedLookup,
        *,
        auditor: Auditor | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        self.assembler, self.tracker, self.committed = assembler, tracker, committed
        self._auditor = None if type(auditor) is NoOpAuditor else auditor
        self._key_of, self._value_of = key_deserializer, value_deserializer
        self._watermarks: dict[TopicAndPartition, DeliveredUpTo] = {}
        inspects = self._auditor or key_deserializer or value_deserializer
        self._may_use_runs = inspects is None and assembler.is_default
        self.skipped = 0
        """Records that a deserializer raised ``Skip`` for."""

    def process(self, records: list[Any]) -> Processed:
        """Return the messages in ``records``, which is emptied.

        Each exception of a record becomes a failure of its partition.
        """
        # Fast path: a batch of plain messages needs no per-record state while no message is incomplete.
        if self._may_use_runs and not self.assembler.pool:
            runs = plain_runs(records)
            if runs and all(first >= self.watermark(partition).current for partition, first, _ in runs):
                return self._deliver_runs(records, runs)
        return self._process_each(records)

    def _deliver_runs(self, records: list[Any], runs: list[tuple[TopicAndPartition, int, int]]) -> Processed:
        for partition, first, last in runs:
            self.tracker.track_run(partition, first, last)
            self.watermark(partition).current = last
        processed = Processed(records[:])
        records.clear()
        return processed

    def _process_each(self, records: list[Any]) -> Processed:
        processed = Processed()
        # Popping releases each record before the next: chunks live in the buffer alone, not twice.
        records.reverse()
        while records:
            record = records.pop()
            partition = (record.topic(), record.partition())
            # Later records of the partition would be delivered before the failed one.
            if partition in processed.failures:
                continue
            try:
                if self._deliver(partition, record):
                    processed.records.append(record)
            except Skip:
                self.skipped += 1
                self.assembler.pool.count_lost(partition, "skipped")
            except Exception as error:  # noqa: BLE001 - deserializers and auditors are the user's; the caller gets it
                processed.failures[partition] = RecordFailed(Partition(*partition), record.offset(), error)
        if self._auditor is not None:
            for (topic, reason), messages in self.assembler.pool.take_lost().items():
                self._auditor.lost(topic, reason, messages)
        return processed

    def _deliver(self, partition: TopicAndPartition, record: Record) -> bool:
        key, headers = record.key(), record.headers()
        raw_key = key
        if self._key_of is not None:
            key = self._key_of(partition[0], raw_key, headers)
        header = find_last(headers, LARGE_MESSAGE)
        value = self._assemble(partition, record, header)
        if value is _NO_MESSAGE:
            return False
        # Before deserialization: the auditor counts bytes of the topic and not of Python objects.
        size = _size(value)
        if self._value_of is not None:
            value = self._value_of(partition[0], value, headers)
        # Order: everything that may raise comes before the watermark. A failed record is then delivered again.
        self._audit(record, key, value, _size(raw_key) + size)
        self.watermark(partition).current = record.offset()
        self._set_headers(partition, record, headers, header)
        if key is not raw_key:
            record.set_key(key)
        record.set_value(value)
        return True

    def _assemble(self, partition: TopicAndPartition, record: Record, header: Header | None) -> Any:
        """Return the message that the record completes if it is due, else ``_NO_MESSAGE``."""
        offset = record.offset()
        assembled = self.assembler.assemble(partition, offset, record.value(), header)
        if assembled.incomplete:
            self.tracker.leave_out(partition, offset)
            return _NO_MESSAGE
        # A restart reads from the safe offset. What the user committed beyond it was delivered before, and is only
        # tracked.
        delivered = offset >= self.watermark(partition).current
        safe = min(offset + 1, self.assembler.safe_offset(partition, offset))
        self.tracker.track(partition, offset, safe, assembled.starting_offset, delivered)
        return assembled.value if delivered else _NO_MESSAGE

    def _audit(self, record: Record, key: Any, value: Any, size: int) -> None:
        if self._auditor is not None:
            token = self._auditor.audit_token(key, value)
            self._auditor.record(token, record.topic(), record.timestamp()[1], 1, size, AuditType.SUCCESS)

    def _set_headers(
        self, partition: TopicAndPartition, record: Record, headers: list[Header] | None, header: Header | None
    ) -> None:
        """Give the record the ``_lm`` of the whole message, and ``_so`` if an incomplete message holds the safe
        offset back.
        """
        safe = self.tracker.safe_offset(partition)
        is_held_back = safe is not None and safe != record.offset() + 1
        if header is None and not is_held_back:
            return
        new_headers = list(headers or ())
        if header is not None:
            header_value = decode_large_message_header(header[1]).for_whole_message()
            new_headers = [
                *drop_header(headers, LARGE_MESSAGE),
                (LARGE_MESSAGE, encode_large_message_header(header_value)),
            ]
        if safe is not None and is_held_back:
            new_headers.append((SAFE_OFFSET, encode_long(safe)))
        record.set_headers(new_headers)

    def watermark(self, partition: TopicAndPartition) -> DeliveredUpTo:
        """Return the high watermark of a partition, initially read from its commit."""
        watermark = self._watermarks.get(partition)
        if watermark is None:
            stored = self.committed(partition)
            offset = offset_in(stored.metadata) if stored else None
            watermark = (
                DeliveredUpTo(offset, offset, stored.offset) if stored and offset is not None else DeliveredUpTo()
            )
            self._watermarks[partition] = watermark
        return watermark

    def watermarks(self) -> Mapping[TopicAndPartition, DeliveredUpTo]:
        """Return the high watermarks looked up so far."""
        return self._watermarks

    def forget_watermarks(self, partitions: Sequence[TopicAndPartition]) -> None:
        """Drop watermarks, so that the next use reads the commit again."""
        for partition in partitions:
            self._watermarks.pop(partition, None)

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget one partition, or all."""
        self.tracker.clear(partition)
        self.assembler.clear(partition)
        self.forget_watermarks(list(self._watermarks) if partition is None else [partition])


_NO_MESSAGE: Any = object()
"""Marks the absence of a message; compared by identity, because None and empty bytes are messages."""


def plain_runs(records: Sequence[Any]) -> list[tuple[TopicAndPartition, int, int]] | None:
    """Return partition, first and last offset of each run of plain messages; None if any record is not plain.

    A plain message has neither an ``_lm`` header nor a chunk's own header, and follows its predecessor in order.
    """
    # Fast path: this loop sees every message, so it only calls C methods and allocates nothing within a run.
    runs: list[tuple[TopicAndPartition, int, int]] = []
    topic, number, first, last = "", -1, 0, -1
    for record in records:
        headers = record.headers()
        if headers and (len(headers) > 1 or headers[0][0] == LARGE_MESSAGE) and find_last(headers, LARGE_MESSAGE):
            return None
        value = record.value()
        if value and not 0 < value[0] < 128 and decode_chunk(value):
            return None
        offset = record.offset()
        if record.partition() != number or record.topic() != topic:
            if last >= 0:
                runs.append(((topic, number), first, last))
            topic, number, first = record.topic(), record.partition(), offset
        elif offset <= last:
            return None
        last = offset
    return [*runs, ((topic, number), first, last)] if last >= 0 else runs


def _size(data: Any) -> int:
    return 0 if data is None else len(data)

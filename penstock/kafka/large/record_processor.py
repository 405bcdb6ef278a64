"""From polled records to delivered messages: assembled, filtered, with their headers, and with what went wrong.

A record is anything with the methods of ``confluent_kafka.Message``; the ones returned are the ones given, with value
and headers replaced where a message was put together. No I/O happens here; only ``committed`` may block.
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
    encode_large_message_header,
    encode_long,
    find_last,
    without,
)
from penstock.kafka.large.safe_offsets import DeliveredOffsets, TopicAndPartition, offset_in


class Record(Protocol):
    """What is used of a ``confluent_kafka.Message``."""

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
    """What the broker holds for a partition: an offset and its metadata as they are stored."""

    offset: int
    metadata: str | None


CommittedOf = Callable[[TopicAndPartition], Committed | None]
"""Asks the broker for what is committed of a partition; None where nothing is."""
Deserializer = Callable[[str, "Bytes | None", "list[Header] | None"], Any]
"""Topic, bytes and headers -> key or value. May raise ``Skip``."""


@dataclass(slots=True)
class DeliveredUpTo:
    """The high watermark of a partition: messages below it were delivered before, and are left out. -1: none.

    ``current`` is what was last delivered, sought to or committed; ``stored`` and ``committed`` are the user's offset
    and the safe offset of the commit that reading began with.
    """

    current: int = -1
    stored: int = -1
    committed: int = -1


@dataclass(slots=True)
class Processed:
    """What a poll gave: messages to deliver, and the first failure of each partition; its further records are left."""

    records: list[Any] = field(default_factory=list)
    failures: dict[TopicAndPartition, RecordFailed] = field(default_factory=dict)


class Processor:
    """Processes records of any partitions, each partition's in the order of their offsets."""

    def __init__(
        self,
        assembler: Assembler,
        tracker: DeliveredOffsets,
        committed: CommittedOf,
        *,
        auditor: Auditor | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        self.assembler, self.tracker, self.committed = assembler, tracker, committed
        self._auditor = None if type(auditor) is NoOpAuditor else auditor
        self._key_of, self._value_of = key_deserializer, value_deserializer
        self._watermarks: dict[TopicAndPartition, DeliveredUpTo] = {}
        looks = self._auditor or key_deserializer or value_deserializer
        self._by_runs = looks is None and assembler.is_default
        self.skipped = 0
        """Records that a deserializer raised ``Skip`` for."""

    def process(self, records: list[Any]) -> Processed:
        """The messages in ``records``, which is emptied, so that segments live in the buffer alone.

        Whatever goes wrong with a record is a failure of its partition. A whole batch of plain messages costs little.
        """
        if self._by_runs and not self.assembler.pool:
            runs = plain_runs(records)
            if runs and all(first >= self.watermark(partition).current for partition, first, _ in runs):
                return self._deliver_runs(records, runs)
        return self._process_each(records)

    def _deliver_runs(self, records: list[Any], runs: list[tuple[TopicAndPartition, int, int]]) -> Processed:
        for partition, first, last in runs:
            self.tracker.track_run(partition, first, last)
            self.watermark(partition).current = last
        result = Processed(records[:])
        records.clear()
        return result

    def _process_each(self, records: list[Any]) -> Processed:
        result = Processed()
        records.reverse()
        while records:
            record = records.pop()
            partition = (record.topic(), record.partition())
            if partition in result.failures:
                continue
            try:
                if self._is_delivered(partition, record):
                    result.records.append(record)
            except Skip:
                self.skipped += 1
                self.assembler.pool.lose(partition, "skipped")
            except Exception as error:  # noqa: BLE001 - deserializers and auditors are the user's; the caller gets it
                result.failures[partition] = RecordFailed(Partition(*partition), record.offset(), error)
        if self._auditor is not None:
            for (topic, reason), messages in self.assembler.pool.take_lost().items():
                self._auditor.lost(topic, reason, messages)
        return result

    def _is_delivered(self, partition: TopicAndPartition, record: Record) -> bool:
        key, headers = record.key(), record.headers()
        raw_key = key
        if self._key_of is not None:
            key = self._key_of(partition[0], raw_key, headers)
        header = find_last(headers, LARGE_MESSAGE)
        value = self._assemble(partition, record, header)
        if value is _NONE:
            return False
        size = _size(value)
        if self._value_of is not None:
            value = self._value_of(partition[0], value, headers)
        self._audit(record, key, value, _size(raw_key) + size)
        self.watermark(partition).current = record.offset()
        self._finish(partition, record, headers, header)
        if key is not raw_key:
            record.set_key(key)
        record.set_value(value)
        return True

    def _assemble(self, partition: TopicAndPartition, record: Record, header: Header | None) -> Any:
        """The message that the record completes, if it is to be delivered; else _NONE."""
        offset = record.offset()
        assembled = self.assembler.assemble(partition, offset, record.value(), header)
        if assembled.incomplete:
            self.tracker.leave_out(partition, offset)
            return _NONE
        delivered = offset >= self.watermark(partition).current
        safe = min(offset + 1, self.assembler.safe_offset(partition, offset))
        self.tracker.track(partition, offset, safe, assembled.starting_offset, delivered)
        return assembled.value if delivered else _NONE

    def _audit(self, record: Record, key: Any, value: Any, size: int) -> None:
        if self._auditor is not None:
            token = self._auditor.audit_token(key, value)
            self._auditor.record(token, record.topic(), record.timestamp()[1], 1, size, AuditType.SUCCESS)

    def _finish(
        self, partition: TopicAndPartition, record: Record, headers: list[Header] | None, header: Header | None
    ) -> None:
        """Set the headers as the reader is to see them: ``_lm`` of the whole message, and ``_so`` where it tells."""
        safe = self.tracker.safe_offset(partition)
        tells = safe is not None and safe != record.offset() + 1
        if header is None and not tells:
            return
        changed = list(headers or ())
        if header is not None:
            whole = decode_large_message_header(header[1]).assembled()
            changed = [*without(headers, LARGE_MESSAGE), (LARGE_MESSAGE, encode_large_message_header(whole))]
        if safe is not None and tells:
            changed.append((SAFE_OFFSET, encode_long(safe)))
        record.set_headers(changed)

    def watermark(self, partition: TopicAndPartition) -> DeliveredUpTo:
        """The high watermark of a partition, at first by what is committed."""
        mark = self._watermarks.get(partition)
        if mark is None:
            stored = self.committed(partition)
            offset = offset_in(stored.metadata) if stored else None
            mark = DeliveredUpTo(offset, offset, stored.offset) if stored and offset is not None else DeliveredUpTo()
            self._watermarks[partition] = mark
        return mark

    def known(self) -> Mapping[TopicAndPartition, DeliveredUpTo]:
        """The partitions whose high watermark was asked for."""
        return self._watermarks

    def forget_watermarks(self, partitions: Sequence[TopicAndPartition]) -> None:
        """To be asked for again."""
        for partition in partitions:
            self._watermarks.pop(partition, None)

    def clear(self, partition: TopicAndPartition | None = None) -> None:
        """Forget one partition, or all."""
        self.tracker.clear(partition)
        self.assembler.clear(partition)
        self.forget_watermarks(list(self._watermarks) if partition is None else [partition])


_NONE: Any = object()
"""No message. Told by identity, as None and empty bytes are messages."""


def plain_runs(records: Sequence[Any]) -> list[tuple[TopicAndPartition, int, int]] | None:
    """Partition, first and last offset of each run of records of one partition; None unless all are plain messages.

    Plain is what has neither an ``_lm`` header nor a segment's own header, and follows in order. Every message is seen
    here, so this is one plain loop: calls of C methods, and nothing made for a record that goes on a run.
    """
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

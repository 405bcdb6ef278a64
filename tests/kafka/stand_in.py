"""A log and a plain consumer in memory, driven by a consumer's state like a real consumer."""

from __future__ import annotations

from typing import Any

from penstock.kafka.client.consumer_state import ConsumerState
from penstock.kafka.large.assembler import Assembler
from penstock.kafka.large.record_processor import Committed, Processor
from penstock.kafka.large.safe_offsets import DeliveredOffsets
from tests.kafka.kafka_vectors import TP, Key, Record


class Broker:
    """Records by partition, and the committed offsets."""

    def __init__(self) -> None:
        self.records: dict[Key, list[Record]] = {}
        self.committed: dict[Key, Committed] = {}

    def write(self, value: bytes | None, headers: Any = None, of: Key = TP, key: bytes | None = None) -> int:
        """Append a record and return its offset."""
        log = self.records.setdefault(of, [])
        log.append(Record(log[-1].offset() + 1 if log else 0, value, headers, key, of))
        return log[-1].offset()


class Consumer:
    """A reader of one or several partitions, with at most ``at_once`` records per poll."""

    def __init__(self, broker: Broker, *assigned: Key, **options: Any) -> None:
        self.broker, self.assigned = broker, assigned or (TP,)
        self.tracker = DeliveredOffsets(options.pop("tracked", 500))
        bounds = options.pop("capacity", 32_000_000), options.pop("gap", 1000)
        self.assembler = Assembler(*bounds, exception_on_dropped=options.pop("exception_on_dropped", False))
        self.state = ConsumerState(Processor(self.assembler, self.tracker, broker.committed.get, **options))
        self.raw = {of: broker.committed[of].offset if of in broker.committed else 0 for of in self.assigned}
        self.paused: set[Key] = set()

    def poll(self, at_once: int = 1000) -> list[Any]:
        """Poll like the Java library: failures of the previous poll are raised first."""
        self._raise_due([of for of in self.assigned if of not in self.paused])
        records: list[Any] = []
        for of in self.assigned:
            if of not in self.paused:
                records += [r.copy() for r in self.broker.records.get(of, []) if r.offset() >= self.raw[of]]
        records = records[:at_once]
        for record in records:
            self.raw[record.topic(), record.partition()] = record.offset() + 1
        messages = self.state.process(records)
        assert not records
        self.raw |= self.state.rewinds()
        if not messages:
            self._raise_due([])
        return messages

    def _raise_due(self, active: list[Key]) -> None:
        failure = self.state.take_failure(active)
        if failure is not None:
            self.raw |= failure.resume
            raise failure

    def seek(self, offset: int, of: Key = TP) -> None:
        raw = self.state.seek(of, offset)
        self.raw[of] = self.raw[of] if raw is None else raw

    def seek_to_committed(self, of: Key = TP) -> None:
        self.raw[of] = self.state.seek_to_committed(of)

    def commit(self) -> None:
        self.broker.committed |= self.state.commit(self.assigned, self.raw.__getitem__)

    def commit_offset(self, offset: int, metadata: str | None = "", of: Key = TP) -> None:
        self.broker.committed |= self.state.commit_offsets({of: Committed(offset, metadata)})


def offsets(messages: list[Any]) -> list[int]:
    """Return the offsets of messages in order."""
    return [message.offset() for message in messages]

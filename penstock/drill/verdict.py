"""The verdict of a drill: compares every sent message with the stored ones and with the balance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.client import Log
from penstock.counts import Counts, Name, lost
from penstock.drill.kafka import compare_with_kafka, count_serials
from penstock.drill.pipe import DrillPipe, datagrams_of
from penstock.drill.senders import Appender, DatagramSender, LineSender, Position, Sender, Serial, serial_of
from penstock.drill.settings import kafka_handlers


@dataclass(frozen=True)
class Verdict:
    """The errors, a line each (empty if all is well); the losses by name; the balance.

    ``broken_off``: lines in connections whose receiver was killed; TCP reports their loss to no side.
    """

    wrong: list[str]
    losses: dict[str, int]
    broken_off: int
    sent: int
    acknowledged: int
    balance: dict[str, Any] = field(repr=False)

    def document(self) -> dict[str, Any]:
        """Return the verdict as a JSON-ready object."""
        return {
            "wrong": self.wrong,
            "losses": self.losses,
            "broken_off": self.broken_off,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "unaccounted": self.balance["unaccounted"],
        }


def losses_of(balance: Mapping[str, Any]) -> Counts:
    """Return all losses that a balance names, by listener or topic and by name."""
    losses = Counts()
    for listener in balance["listeners"]:
        losses.absorb({f"{listener['name']} {name}": count for name, count in lost(listener["counts"]).items()})
    for topic in balance["topics"]:
        losses.absorb({f"{topic['topic']} {name}": count for name, count in lost(topic["fates"]).items()})
    return losses


def judge(pipe: DrillPipe, senders: Sequence[Sender]) -> Verdict:
    """Compare the stored messages with the sent ones once the pipe is idle."""
    # Order: balance first, then messages: a message that lands in between is in both.
    balance = pipe.settled()
    stored = Stored(pipe, senders)
    errors = [*_open(balance), *stored.stored_twice(), *stored.never_sent(senders)]
    acknowledged = 0
    for sender in senders:
        if isinstance(sender, Appender):
            acknowledged += len(sender.acknowledged)
            errors += stored.missing(sender.acknowledged)
        elif isinstance(sender, DatagramSender):
            errors += _uncounted(balance, sender)
    if pipe.kafka:
        sent = {sender.name: sender.sent for sender in senders}
        errors += compare_with_kafka(balance, kafka_handlers(pipe.settings), count_serials(pipe.kafka.address), sent)
    losses = losses_of(balance).pruned()
    # Datagrams have no acknowledgement: one that is not stored must be a loss that the balance names.
    errors += stored.unexplained_losses(senders, sum(losses.values()))
    broken_off = sum(sender.sent - stored.count_of(sender) for sender in senders if isinstance(sender, LineSender))
    return Verdict(errors, losses, broken_off, sum(sender.sent for sender in senders), acknowledged, balance)


def unaccounted_in(balance: Mapping[str, Any]) -> dict[str, int]:
    """Return the messages that a balance cannot account for, by route or topic."""
    if not balance["unaccounted"]:
        return {}
    rows_by_name = [(f"{row['source']} to {row['handler']}", row) for row in balance["routes"]]
    rows_by_name += [(row["topic"], row) for row in balance["topics"]]
    unaccounted = {name: row["unaccounted"] for name, row in rows_by_name if row["unaccounted"]}
    return unaccounted or {"the ledger": balance["unaccounted"]}


def in_words(counts: Mapping[str, int]) -> str:
    """Format counts by name as a line."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _open(balance: Mapping[str, Any]) -> Iterator[str]:
    if balance["unaccounted"]:
        yield f"messages unaccounted for: {in_words(unaccounted_in(balance))}"
    for listener in balance["listeners"]:
        if listener["books"]:
            yield f"{listener['name']}: its counts do not add up: {json.dumps(listener['books'])}"


def _uncounted(balance: Mapping[str, Any], sender: DatagramSender) -> Iterator[str]:
    """Check that each datagram accepted by the kernel is counted as accepted or dropped.

    The messages of a frame that was damaged in the log buffer are counted as ``corrupt``; their datagrams are unknown.
    """
    corrupt = losses_of(balance)[f"{sender.name} {Name.CORRUPT}"]
    counted = datagrams_of(balance, sender.name)
    if counted > sender.datagrams or (counted < sender.datagrams and not corrupt):
        yield f"{sender.name}: {sender.datagrams:,} datagrams sent, {counted:,} counted"


class Stored:
    """The messages in the topics of a pipe."""

    def __init__(self, pipe: DrillPipe, senders: Sequence[Sender]) -> None:
        self._appenders = {sender.name for sender in senders if isinstance(sender, Appender)}
        self.serials: Counter[Serial] = Counter()
        self._appended: dict[Position, Serial] = {}
        self._by_sender: Counter[str] = Counter()
        self.unknown = 0
        self._gaps: list[tuple[str, range]] = []
        with Log(pipe.settings.log.grpc, flight=pipe.settings.log.flight, timeout=30) as log:
            for topic in log.describe():
                self._read(log, topic.name)
                self._gaps += [(topic.name, range(gap.begin, gap.end)) for gap in topic.gaps]

    def _read(self, log: Log, topic: str) -> None:
        for batch in log.batches(topic, "earliest"):
            columns = (batch.column(name).to_pylist() for name in ("offset", "payload"))
            for offset, payload in zip(*columns, strict=True):
                self._count_message(topic, offset, payload)

    def _count_message(self, topic: str, offset: int, payload: bytes) -> None:
        serial = serial_of(payload or b"")
        if serial is None:
            self.unknown += 1
            return
        name, number = serial
        self.serials[name, number] += 1
        # Each message counts once, so that a duplicate cannot hide a missing one.
        self._by_sender[name] += self.serials[name, number] == 1
        if name in self._appenders:
            self._appended[topic, offset] = serial

    def count_of(self, sender: Sender) -> int:
        """Return the number of a sender's messages that are stored."""
        return self._by_sender[sender.name]

    def unexplained_losses(self, senders: Sequence[Sender], named: int) -> Iterator[str]:
        """Check that missing datagrams do not exceed the losses that the balance names."""
        absent = sum(sender.sent - self.count_of(sender) for sender in senders if isinstance(sender, DatagramSender))
        if absent > named:
            yield f"datagrams not stored: {absent:,}; losses in the balance: {named:,}"

    def stored_twice(self) -> Iterator[str]:
        """Check that no message is stored more than once."""
        repeated = [serial for serial, count in self.serials.items() if count > 1]
        if repeated:
            yield f"messages stored twice: {len(repeated):,}, for example {repeated[0][0]} {repeated[0][1]}"

    def never_sent(self, senders: Sequence[Sender]) -> Iterator[str]:
        """Check that every stored message was sent."""
        sent = {sender.name: sender.sent for sender in senders}
        foreign = [serial for serial in self.serials if serial[1] >= sent.get(serial[0], 0)]
        if foreign or self.unknown:
            yield f"messages stored but never sent: {len(foreign) + self.unknown:,}"

    def missing(self, acknowledged: Mapping[Position, Serial]) -> Iterator[str]:
        """Check that each acknowledged append is stored at its offset or lies in a gap."""
        unstored = [
            position
            for position, serial in acknowledged.items()
            if self._appended.get(position) != serial and not self._is_gap(position)
        ]
        if unstored:
            topic, offset = min(unstored)
            yield f"acknowledged appends not stored: {len(unstored):,}, for example offset {offset:,} of {topic}"

    def _is_gap(self, position: Position) -> bool:
        return any(topic == position[0] and position[1] in gap for topic, gap in self._gaps)

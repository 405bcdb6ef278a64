"""Senders: through the daemon's API with and without producer numbers, in transactions, and to a receiver."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.handover.stored_waits import Fate
from penstock.log import LogError, OutcomeInDoubt, OutOfSequence
from penstock.server.api.entries import Accepted
from penstock.server.auth.rights import ANONYMOUS
from penstock.slogd.columns.decode import parse_append
from penstock.slogd.errors import AlreadyExists, ApiError, InDoubt, OutOfOrder
from penstock.slogd.slogd_pb2 import AppendRequest, LogEntry
from penstock.testing.simulation.daemon import Daemon
from penstock.testing.simulation.machine import Machine
from penstock.testing.simulation.promises import Broken, Promises, Sent
from penstock.testing.simulation.receiver import Receiver

ANSWER_TIMEOUT_S = 10.0
ABANDON_SHARE = 0.3
"""Share of refused messages that are not sent again: they must not be stored."""
BURST, BURST_SHARE = 15, 0.2
"""Frames of a burst to a listener that drops, and the share of its steps that are bursts."""
LARGE_SHARE, LARGE_SHARE_OF_DROPPING = 0.1, 0.7
"""Share of frames that are large; with many large ones a burst overruns the log buffer."""
MAX_SMALL_BYTES, MAX_LARGE_BYTES = 300, 6_000
"""Limits for the bytes of messages that are sent together; they fit into a frame of a log buffer."""


@dataclass(slots=True)
class World:
    """The part of a run that all senders use. ``lost_answers``: how many of the next answers get lost."""

    machine: Machine
    daemon: Daemon
    promises: Promises
    record: Callable[[str, str], None]
    lost_answers: int = 0
    accepts_messages: bool = True
    """Whether senders may begin new messages."""

    def loses_answer(self) -> bool:
        """Report whether the answer to a request that is sent now is lost."""
        self.lost_answers -= self.lost_answers > 0
        return self.lost_answers > 0


class Sender(Protocol):
    """A sender takes steps until it ``is_idle``: nothing waits to be sent or answered."""

    name: str

    @property
    def is_idle(self) -> bool: ...

    def step(self, at_once: bool = False) -> None:
        """Send, or look for the answer. ``at_once``: only if the daemon does not wait for the disk."""


class Messages:
    """Up to ``count`` unique messages of one sender."""

    def __init__(
        self, name: str, world: World, dice: random.Random, count: int, large_share: float = LARGE_SHARE
    ) -> None:
        self._name, self._world, self._dice, self._remaining = name, world, dice, count
        self._large_share = large_share
        self._made = 0

    @property
    def remaining(self) -> int:
        """The number of messages that may be made now."""
        return self._remaining if self._world.accepts_messages else 0

    def make(self, most: int) -> list[bytes]:
        """Return up to ``most`` new messages, and at least one."""
        count = min(self._dice.randint(1, most), self._remaining)
        self._remaining -= count
        largest = MAX_LARGE_BYTES if self._dice.random() < self._large_share else MAX_SMALL_BYTES
        messages = [b"%s %d " % (self._name.encode(), self._made + number) for number in range(count)]
        self._made += count
        return [message + b"." * self._dice.randint(0, largest // count) for message in messages]


def request(sent: Sent, producer: str = "", sequence: int = 0, transaction: str = "") -> bytes:
    """Return the request for an append, as it comes from the network."""
    entries = [LogEntry(raw_bytes=payload) for payload in sent.payloads]
    return AppendRequest(
        topic=sent.topic, logs=entries, producer_id=producer, sequence=sequence, transaction_id=transaction
    ).SerializeToString()


@dataclass(slots=True)
class _Attempt:
    life: int
    deadline: float
    is_lost: bool
    outcome: Accepted | ApiError | None = None

    def answer(self, outcome: Accepted | ApiError) -> None:
        if not self.is_lost:
            self.outcome = outcome


class ApiSender:
    """Appends to one topic, one request in flight; sends again what was not answered or was refused.

    ``numbered``: with an id and sequence numbers, so that retries are stored once.
    """

    def __init__(self, name: str, world: World, dice: random.Random, topic: str, messages: int, numbered: bool) -> None:
        self.name, self._topic, self._world, self._dice = name, topic, world, dice
        self._messages = Messages(name, world, dice, messages)
        self._producer, self._sequence = (name if numbered else ""), 0
        self._sent: Sent | None = None
        self._attempt: _Attempt | None = None

    @property
    def is_idle(self) -> bool:
        return not self._messages.remaining and self._sent is None

    def step(self, at_once: bool = False) -> None:
        if self._attempt is not None:
            self._look_for_answer(self._attempt)
        elif self._world.daemon.is_running and (self._sent or self._messages.remaining):
            self._send(at_once)

    def take_answer(self) -> None:
        """Take the answer to the request in flight if it has arrived."""
        if self._attempt is not None and self._attempt.outcome is not None:
            self._look_for_answer(self._attempt)

    def _send(self, at_once: bool) -> None:
        world = self._world
        if at_once and not world.daemon.api.topics.is_open(self._topic):
            return
        if self._sent is None:
            most = 40 if self._dice.random() < 0.1 else 5
            self._sent = Sent(self._topic, self._messages.make(most), bool(self._producer))
            world.promises.sent.append(self._sent)
        self._attempt = _Attempt(
            world.daemon.life, world.machine.clock.monotonic() + ANSWER_TIMEOUT_S, world.loses_answer()
        )
        append = parse_append(request(self._sent, self._producer, self._sequence))
        try:
            world.daemon.api.hand_over(append, "grpc", ANONYMOUS, self._attempt.answer)
        except ApiError as error:
            self._attempt.answer(error)

    def _look_for_answer(self, attempt: _Attempt) -> None:
        assert self._sent is not None
        outcome, world = attempt.outcome, self._world
        if isinstance(outcome, Accepted):
            world.promises.acknowledge(self._sent, outcome.offsets.start)
            world.record(self.name, f"{len(self._sent.payloads)} stored at {outcome.offsets.start} of {self._topic}")
            self._sent, self._sequence = None, self._sequence + 1
        elif isinstance(outcome, InDoubt):
            self._sent.uncertain += 1
            world.record(self.name, f"in doubt: {outcome}")
        elif outcome is not None:
            self._refused(self._sent, outcome)
        elif world.daemon.life != attempt.life or world.machine.clock.monotonic() > attempt.deadline:
            self._sent.uncertain += 1
            world.record(self.name, "no answer")
        else:
            return
        self._attempt = None

    def _refused(self, sent: Sent, error: ApiError) -> None:
        self._world.record(self.name, f"refused: {error}")
        if isinstance(error, OutOfOrder | AlreadyExists) and not self._world.promises.damages:
            raise Broken(f"{self.name}: number {self._sequence} is refused: {error}")
        if isinstance(error, OutOfOrder) and self._topic in self._world.promises.shortened:
            # The number before is lost with its rows, so no retry is ever accepted: the client begins again.
            self._producer, self._sequence, sent.once = f"{self._producer}, again", 0, False
        if not sent.uncertain and not sent.acknowledged and self._dice.random() < ABANDON_SHARE:
            self._sent = None


class TransactionSender:
    """Stores messages in two topics at once, with producer numbers, so that a transaction can be repeated."""

    def __init__(self, name: str, world: World, dice: random.Random, topics: tuple[str, str], messages: int) -> None:
        self.name, self._topics, self._world, self._dice = name, topics, world, dice
        self._messages = Messages(name, world, dice, messages)
        self._parts: list[Sent] = []
        self._producer, self._sequence = name, 0
        self._transaction = ""
        self._life = 0
        self._staged = 0

    @property
    def is_idle(self) -> bool:
        return not self._messages.remaining and not self._parts

    def step(self, at_once: bool = False) -> None:
        if at_once or self.is_idle or not self._world.daemon.is_running:
            return
        if self._life != self._world.daemon.life:
            self._transaction = ""
        if not self._parts:
            self._parts = [
                Sent(topic, self._messages.make(3), True) for topic in self._topics if self._messages.remaining
            ]
            self._world.promises.sent += self._parts
            self._world.promises.transactions.append(self._parts)
        try:
            self._advance()
        except (LogError, ApiError) as error:
            self._world.record(self.name, f"refused: {error}")
            self._transaction = ""
            if isinstance(error, OutOfOrder | OutOfSequence) and self._world.promises.shortened.intersection(
                self._topics
            ):
                self._producer, self._sequence = f"{self._producer}, again", 0
                for part in self._parts:
                    part.once = False

    def _advance(self) -> None:
        daemon = self._world.daemon
        if not self._transaction:
            self._life, self._staged = daemon.life, 0
            self._transaction = daemon.log.transactions.begin()
        elif self._staged < len(self._parts):
            part = self._parts[self._staged]
            append = parse_append(request(part, self._producer, self._sequence, self._transaction))
            daemon.api.hand_over(append, "grpc", ANONYMOUS, lambda outcome: None)
            self._staged += 1
        else:
            self._commit()

    def _commit(self) -> None:
        # Uncertain until it is answered: the daemon may die within the call.
        for part in self._parts:
            part.uncertain += 1
        is_lost = self._world.loses_answer()
        try:
            self._world.daemon.log.transactions.commit(self._transaction)
        except LogError as error:
            if not is_lost and not isinstance(error, OutcomeInDoubt):
                self._resolve()
            raise
        if is_lost:
            self._world.record(self.name, "no answer to a commit")
            return
        self._resolve()
        for part in self._parts:
            self._world.promises.acknowledge(part)
        self._world.record(self.name, f"transaction {self._sequence} is committed")
        self._parts, self._transaction, self._sequence = [], "", self._sequence + 1

    def _resolve(self) -> None:
        for part in self._parts:
            part.uncertain -= 1


class ListenerSender:
    """Sends to a listener; waits for each answer if the listener gives any, and then sends again what is not stored."""

    def __init__(self, name: str, world: World, dice: random.Random, receiver: Receiver, messages: int) -> None:
        self.name, self._world, self._dice, self._receiver = name, world, dice, receiver
        large_share = LARGE_SHARE if receiver.answers else LARGE_SHARE_OF_DROPPING
        self._messages = Messages(name, world, dice, messages, large_share)
        self._sent: Sent | None = None
        self._waits_in_life = 0
        self._deadline = 0.0
        self._written: list[tuple[Sent, int]] = []

    @property
    def is_idle(self) -> bool:
        return not self._messages.remaining and self._sent is None

    def step(self, at_once: bool = False) -> None:
        if self._waits_in_life:
            now = self._world.machine.clock.monotonic()
            if self._waits_in_life != self._receiver.life or now > self._deadline:
                self._waits_in_life = 0
            return
        # A burst overruns a log that lags, whose listener drops frames then.
        for _ in range(BURST if self._dice.random() < BURST_SHARE and not self._receiver.answers else 1):
            if self._sent is None and self._messages.remaining:
                self._sent = Sent(self._receiver.topic, self._messages.make(8), not self._receiver.answers)
                self._world.promises.sent.append(self._sent)
            if self._sent is not None and self._receiver.can_receive(self._sent.payloads, may_drop=not at_once):
                self._send(self._sent)

    def _send(self, sent: Sent) -> None:
        # Uncertain until it is answered: the receiver may die within the call.
        sent.uncertain += 1
        is_lost, self._waits_in_life = self._world.loses_answer(), self._receiver.life
        self._deadline = self._world.machine.clock.monotonic() + ANSWER_TIMEOUT_S
        if not self._receiver.answers:
            self._sent, self._waits_in_life = None, 0

        def answer(fate: Fate) -> None:
            if not is_lost and self._sent is sent and fate is Fate.STORED:
                sent.uncertain -= 1
                self._world.promises.acknowledge(sent)
                self._world.record(self.name, f"{len(sent.payloads)} stored")
                self._sent = None
                self._written = [entry for entry in self._written if entry[0] is not sent]
            self._waits_in_life = 0

        self._receiver.receive(sent.payloads, answer)
        self._world.record(self.name, f"{sent.payloads[0][:20]!r} and so on: {len(sent.payloads)} written")
        if self._receiver.answers:
            self._written.append((sent, self._world.machine.boots))

    def confirm_written(self) -> None:
        """Count what was written since the last power cut as promised: a listener that blocks drops nothing."""
        for sent, boot in self._written:
            if boot == self._world.machine.boots and sent.uncertain:
                sent.uncertain -= 1
                sent.acknowledged += 1
        self._written = []

"""The promises to groups of Kafka's protocol: commits, generations and assignments, as their requests and answers show.

Invariant: commits and the deletion of a group take effect in the order in which their requests begin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.server.kafka.schema.messages import Api, Request
from penstock.testing.simulation.promises import Broken

FENCED = (
    ErrorCode.illegal_generation,
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_instance_id,
    ErrorCode.rebalance_in_progress,
)
"""Errors of a request that has changed nothing."""


class Register:
    """The committed offset of a group in a topic: the values that it may have. None: no offset."""

    def __init__(self) -> None:
        self._values: list[int | None] = [None]
        self._open = {0}
        """Numbers of writes that may have the last word."""
        self._unordered: set[int] = set()

    def begin(self, value: int | None, *, is_ordered: bool = True) -> int:
        """Return the number of a write that begins. One that is not ordered takes effect at any time until its end."""
        number = len(self._values)
        self._values.append(value)
        self._open.add(number)
        if not is_ordered:
            self._unordered.add(number)
        return number

    def acknowledge(self, number: int) -> None:
        """Forget the writes that took effect before an acknowledged one."""
        self._open = {write for write in self._open if write >= number or write in self._unordered}
        if number in self._unordered:
            # Writes in flight may take effect before it or after it: only a write that begins now is later.
            self._unordered.discard(number)
            self.begin(self._values[number])

    def refuse(self, number: int) -> None:
        """Forget a write that is refused."""
        self._unordered.discard(number)
        self._open.discard(number)

    @property
    def possible(self) -> set[int | None]:
        """All values that a read may have now."""
        return {self._values[number] for number in self._open}

    def begin_read(self) -> Callable[[], set[int | None]]:
        """Return a function that returns all values that a read may have that begins now and ends at its call."""
        before, begin = self.possible, len(self._values)
        return lambda: before | self.possible | set(self._values[begin:])


@dataclass(slots=True)
class Generation:
    """A generation: its leader and life of the daemon, the assignments that its leader sent, and the owner by topic."""

    leader: str
    protocol: str
    life: int
    sent: list[dict[str, bytes]] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)


class GroupPromises:
    """Promises to a group. ``is_damaged`` reports damage, which may set a commit back to an earlier one."""

    def __init__(self, name: str, life: Callable[[], int], is_damaged: Callable[[], bool]) -> None:
        self.name, self._life, self._is_damaged = name, life, is_damaged
        self.registers: dict[str, Register] = defaultdict(Register)
        self.processed: dict[str, dict[int, bytes]] = defaultdict(dict)
        """Payload of each offset that a member has processed, by topic."""
        self.generations: dict[int, Generation] = {}
        self.newest = -1

    def process(self, topic: str, records: Iterable[tuple[int, bytes]]) -> None:
        """Note the records that a member has processed."""
        for offset, payload in records:
            before = self.processed[topic].get(offset, payload)
            if before != payload and not self._is_damaged():
                raise Broken(f"group {self.name}: offset {offset} of {topic} was {before!r}, and is {payload!r}")
            self.processed[topic][offset] = payload

    def check_offset(self, topic: str, offset: int | None, possible: set[int | None]) -> None:
        """Check a committed offset that a member or the disk has."""
        highest = max((value for value in possible if value is not None), default=0)
        if offset not in possible and not (self._is_damaged() and (offset or 0) <= highest):
            raise Broken(f"group {self.name}: its offset in {topic} is {offset}, not one of {_sorted(possible)}")

    def begin_generation(self, number: int, leader: str, protocol: str) -> None:
        """Check the generation of a member that has joined."""
        life = self._life()
        generation = self.generations.get(number)
        if generation is None:
            self.generations[number], self.newest = Generation(leader, protocol, life), number
        elif number != self.newest or (generation.leader, generation.protocol, generation.life) != (
            leader,
            protocol,
            life,
        ):
            raise Broken(f"group {self.name}: generation {number} begins twice: {generation}, then with {leader}")

    def is_newest(self, number: int) -> bool:
        """Report whether a generation is the newest one, and of this life of the daemon."""
        generation = self.generations.get(number)
        return generation is not None and number == self.newest and generation.life == self._life()

    def check_newest(self, number: int, request: str) -> None:
        """Check that a request that was accepted is of the newest generation."""
        if not self.is_newest(number):
            raise Broken(f"group {self.name}: {request} of generation {number} is accepted in {self.newest}")

    def assign(self, number: int, member: str, assignment: bytes) -> None:
        """Check the assignment that a member gets."""
        self.check_newest(number, "a sync")
        generation = self.generations[number]
        if not any(sent.get(member, b"") == assignment for sent in generation.sent):
            raise Broken(f"group {self.name}: {member} gets {assignment!r}, which its leader did not send")
        for topic in topics_of(assignment):
            if generation.owners.setdefault(topic, member) != member:
                raise Broken(f"group {self.name}: {topic} has two owners in generation {number}")


def topics_of(assignment: bytes) -> list[str]:
    """Return the topics of an assignment, or of a member's subscription."""
    return assignment.decode().split(",") if assignment else []


class AllPromises:
    """The promises to all groups, and the notes of each request and its answer."""

    def __init__(self, life: Callable[[], int], is_damaged: Callable[[], bool]) -> None:
        self._life, self._is_damaged = life, is_damaged
        self.groups: dict[str, GroupPromises] = {}

    def group(self, name: str) -> GroupPromises:
        """Return the promises to a group."""
        return self.groups.setdefault(name, GroupPromises(name, self._life, self._is_damaged))

    def observe(self, request: Request) -> Callable[[Any], None]:
        """Note that a request begins; return the function that notes its answer. Raises Broken."""
        message = request.message
        match request.api:
            case Api.JOIN_GROUP:
                return lambda answer: self._joined(self.group(message.group_id), answer)
            case Api.SYNC_GROUP:
                return self._sync(message)
            case Api.HEARTBEAT:
                return self._heartbeat(message)
            case Api.OFFSET_COMMIT:
                return self._commit(message)
            case Api.OFFSET_FETCH:
                return self._fetch_offsets(message)
            case Api.DELETE_GROUPS:
                return self._delete_groups(message)
            case Api.DELETE_TOPICS:
                return self._delete_topics(message)
        return lambda answer: None

    @staticmethod
    def _joined(group: GroupPromises, answer: Any) -> None:
        if answer.error_code is ErrorCode.none:
            group.begin_generation(answer.generation_id, answer.leader, answer.protocol_name or "")

    def _sync(self, message: Any) -> Callable[[Any], None]:
        group = self.group(message.group_id)
        generation = group.generations.get(message.generation_id)
        if message.assignments and generation is not None and generation.leader == message.member_id:
            generation.sent.append({each.member_id: each.assignment for each in message.assignments})

        def answered(answer: Any) -> None:
            if answer.error_code is ErrorCode.none:
                group.assign(message.generation_id, message.member_id, answer.assignment)

        return answered

    def _heartbeat(self, message: Any) -> Callable[[Any], None]:
        group = self.group(message.group_id)
        is_newest = group.is_newest(message.generation_id)

        def answered(answer: Any) -> None:
            if answer.error_code is ErrorCode.none and not is_newest:
                group.check_newest(message.generation_id, "a heartbeat")

        return answered

    def _commit(self, message: Any) -> Callable[[Any], None]:
        group = self.group(message.group_id)
        number = getattr(message, "generation_id", getattr(message, "generation_id_or_member_epoch", -1))
        is_newest = number < 0 or group.is_newest(number)
        writes = {
            topic.name: (group.registers[topic.name], group.registers[topic.name].begin(part.committed_offset))
            for topic in message.topics
            for part in topic.partitions
        }

        def answered(answer: Any) -> None:
            for topic in answer.topics:
                register, write = writes[topic.name]
                code = topic.partitions[0].error_code
                if code is ErrorCode.none:
                    if not is_newest:
                        group.check_newest(number, "a commit")
                    register.acknowledge(write)
                elif code in FENCED:
                    register.refuse(write)

        return answered

    def _fetch_offsets(self, message: Any) -> Callable[[Any], None]:
        requests = getattr(message, "groups", None) or [message]
        reads = {
            (each.group_id, topic.name): self.group(each.group_id).registers[topic.name].begin_read()
            for each in requests
            for topic in each.topics
        }

        def answered(answer: Any) -> None:
            for request, each in zip(requests, getattr(answer, "groups", None) or [answer], strict=True):
                for topic in each.topics:
                    part = topic.partitions[0]
                    if part.error_code is ErrorCode.none:
                        offset = None if part.committed_offset == -1 else part.committed_offset
                        possible = reads[request.group_id, topic.name]()
                        self.group(request.group_id).check_offset(topic.name, offset, possible)

        return answered

    def _delete_groups(self, message: Any) -> Callable[[Any], None]:
        writes = {
            name: [(register, register.begin(None)) for register in self.group(name).registers.values()]
            for name in message.groups_names
        }

        def answered(answer: Any) -> None:
            for result in answer.results:
                for register, write in writes[result.group_id]:
                    if result.error_code in (ErrorCode.none, ErrorCode.group_id_not_found):
                        register.acknowledge(write)
                    elif result.error_code is ErrorCode.non_empty_group:
                        register.refuse(write)

        return answered

    def _delete_topics(self, message: Any) -> Callable[[Any], None]:
        writes = {
            name: [
                (group.registers[name], group.registers[name].begin(None, is_ordered=False))
                for group in self.groups.values()
            ]
            for name in message.topic_names
        }

        def answered(answer: Any) -> None:
            for response in answer.responses:
                for register, write in writes[response.name]:
                    if response.error_code is ErrorCode.none:
                        register.acknowledge(write)
                    elif response.error_code is ErrorCode.unknown_topic_or_partition:
                        register.refuse(write)

        return answered


def _sorted(values: set[int | None]) -> list[int | None]:
    return sorted(values, key=lambda value: -1 if value is None else value)

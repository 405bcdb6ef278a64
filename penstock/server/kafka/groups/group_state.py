"""One group of consumers: who is in it, and the rebalances in which its members agree on who reads what.

As Kafka's classic protocol has it: EMPTY -> JOINING (all say what they want) -> SYNCING (the leader says who gets what)
-> STABLE, and to JOINING again whenever somebody comes, leaves or is silent for longer than its session lasts.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.server.kafka.schema.messages import Values

MAX_MEMBERS = 500
MAX_METADATA = 1 << 18
"""Bytes that a member may say about itself, and that may be assigned to it."""
Waiting = asyncio.Future[Values]


class State(StrEnum):
    """As Kafka calls it."""

    EMPTY = "Empty"
    JOINING = "PreparingRebalance"
    SYNCING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class Asking:
    """Who asks to join, and what with."""

    member: str
    instance: str | None
    client: str
    host: str
    session: float
    rebalance: float
    kind: str
    protocols: dict[str, bytes]


@dataclass(slots=True)
class Member:
    """A member: ``joining`` and ``syncing`` are answers that it waits for."""

    id: str
    asked: Asking
    assignment: bytes = b""
    joining: Waiting | None = None
    syncing: Waiting | None = None
    expiry: asyncio.TimerHandle | None = field(default=None, repr=False)


class Refused(PenstockError):
    """What a member asks cannot be done now."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Group:
    """A group, on one event loop. ``on_empty`` is called once its last member has left or expired."""

    def __init__(self, name: str, on_empty: Callable[[Group], None] = lambda _: None) -> None:
        self.name, self._on_empty = name, on_empty
        self.state = State.EMPTY
        self.generation = 0
        self.kind, self.protocol, self.leader = "", "", ""
        self.members: dict[str, Member] = {}
        self._loop = asyncio.get_running_loop()
        self.last_heard = self._loop.time()
        """Time of the loop at which a member last said something."""
        self._deadline: asyncio.TimerHandle | None = None

    # Joining

    def join(self, asked: Asking) -> Waiting:
        """The answer once all have joined. Raises Refused."""
        member = self._member(asked)
        known = member.asked.protocols == asked.protocols and member.asked is not asked
        member.asked = asked
        waiting: Waiting = self._loop.create_future()
        if (known and self.state is State.SYNCING) or (
            known and self.state is State.STABLE and member.id != self.leader
        ):
            self._alive(member)
            waiting.set_result(self._joined(member))
            return waiting
        _settle(member.joining, {"error_code": ErrorCode.unknown_member_id})
        self.last_heard = self._loop.time()
        member.joining = waiting
        _calm(member)
        self._rebalance()
        return waiting

    def _member(self, asked: Asking) -> Member:
        """The member that asks, taken in where it is new. Raises Refused."""
        if self.members and (asked.kind != self.kind or not self._common(asked)):
            raise Refused(ErrorCode.inconsistent_group_protocol)
        if not asked.protocols:
            raise Refused(ErrorCode.inconsistent_group_protocol)
        before = self._instance(asked.instance)
        if asked.member:
            member = self.members.get(asked.member)
            if member is None and before is not None:
                raise Refused(ErrorCode.fenced_instance_id)
            if member is not None:
                return member
        if before is not None:
            self._take_out(before, ErrorCode.fenced_instance_id)
        if len(self.members) >= MAX_MEMBERS:
            raise Refused(ErrorCode.group_max_size_reached)
        self.kind = asked.kind
        member = Member(asked.member or new_member(asked), asked)
        self.members[member.id] = member
        return member

    def _instance(self, instance: str | None) -> Member | None:
        return next((m for m in self.members.values() if instance is not None and m.asked.instance == instance), None)

    def _common(self, asked: Asking) -> bool:
        """Whether all members have a protocol in common with ``asked``; in pairs they might each have another one."""
        replaced = self._instance(asked.instance)
        common = set(asked.protocols)
        for member in self.members.values():
            if member.id != asked.member and member is not replaced:
                common &= set(member.asked.protocols)
        return bool(common)

    def _rebalance(self) -> None:
        """Ask all to join again; go on once they have, or their time is over."""
        if self.state is not State.JOINING:
            self.state = State.JOINING
            for member in self.members.values():
                self._answer_sync(member, {"error_code": ErrorCode.rebalance_in_progress})
            longest = max((member.asked.rebalance for member in self.members.values()), default=0.0)
            self._deadline = self._loop.call_later(longest, self._begin)
        if all(member.joining is not None for member in self.members.values()):
            self._begin()

    def _begin(self) -> None:
        """A new generation of those who have joined; the others are out."""
        if self._deadline is not None:
            self._deadline.cancel()
        for member in [one for one in self.members.values() if one.joining is None]:
            _calm(member)
            del self.members[member.id]
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = State.EMPTY, "", ""
            self._on_empty(self)
            return
        self.state = State.SYNCING
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.protocol = self._chosen()
        for member in self.members.values():
            self._alive(member)
            _settle(member.joining, self._joined(member))
            member.joining = None

    def _chosen(self) -> str:
        """The protocol that all know and most like best."""
        common = set.intersection(*(set(member.asked.protocols) for member in self.members.values()))
        votes = Counter(
            next((name for name in member.asked.protocols if name in common), "") for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _joined(self, member: Member) -> Values:
        shown = self.members.values() if member.id == self.leader else ()
        return {
            "generation_id": self.generation,
            "protocol_type": self.kind,
            "protocol_name": self.protocol,
            "leader": self.leader,
            "member_id": member.id,
            "members": [
                {"member_id": m.id, "group_instance_id": m.asked.instance, "metadata": m.asked.protocols[self.protocol]}
                for m in shown
                if self.protocol in m.asked.protocols
            ],
        }

    # What members do then

    def checked(self, member: str, generation: int, instance: str | None = None) -> Member:
        """The member, where it is one of this generation. Raises Refused."""
        found = self.members.get(member)
        if found is None:
            fenced = self._instance(instance) is not None
            raise Refused(ErrorCode.fenced_instance_id if fenced else ErrorCode.unknown_member_id)
        if generation != self.generation:
            raise Refused(ErrorCode.illegal_generation)
        return found

    def sync(self, member: Member, assignments: dict[str, bytes]) -> Waiting:
        """What the member is to read, once the leader has said it. Raises Refused."""
        if self.state is State.JOINING:
            raise Refused(ErrorCode.rebalance_in_progress)
        waiting: Waiting = self._loop.create_future()
        _settle(member.syncing, {"error_code": ErrorCode.unknown_member_id})
        member.syncing = waiting
        self._alive(member)
        if self.state is State.SYNCING and member.id == self.leader:
            for one in self.members.values():
                one.assignment = assignments.get(one.id, b"")[:MAX_METADATA]
            self.state = State.STABLE
        if self.state is State.STABLE:
            for one in self.members.values():
                self._answer_sync(one, self._synced(one))
        return waiting

    def _answer_sync(self, member: Member, values: Values) -> None:
        if member.syncing is not None:
            _settle(member.syncing, values)
            member.syncing = None
            self._alive(member)

    def _synced(self, member: Member) -> Values:
        return {"protocol_type": self.kind, "protocol_name": self.protocol, "assignment": member.assignment}

    def heartbeat(self, member: Member) -> ErrorCode:
        """Whether it may go on as it does."""
        self._alive(member)
        return ErrorCode.rebalance_in_progress if self.state is State.JOINING else ErrorCode.none

    def leave(self, member: str, instance: str | None) -> ErrorCode:
        """Take a member out."""
        found = self.members.get(member) or self._instance(instance)
        if found is None:
            return ErrorCode.unknown_member_id
        self._take_out(found, ErrorCode.unknown_member_id)
        self._rebalance()
        return ErrorCode.none

    def _alive(self, member: Member) -> None:
        """Its session begins again."""
        self.last_heard = self._loop.time()
        _calm(member)
        member.expiry = self._loop.call_later(member.asked.session, self._expire, member)

    def _expire(self, member: Member) -> None:
        waits = member.joining is not None or member.syncing is not None
        if self.members.get(member.id) is member and not waits:
            self._take_out(member, ErrorCode.unknown_member_id)
            self._rebalance()

    def _take_out(self, member: Member, code: ErrorCode) -> None:
        _calm(member)
        _settle(member.joining, {"error_code": code})
        _settle(member.syncing, {"error_code": code})
        self.members.pop(member.id, None)

    def close(self) -> None:
        """Nobody is waited for any more."""
        if self._deadline is not None:
            self._deadline.cancel()
        for member in list(self.members.values()):
            self._take_out(member, ErrorCode.coordinator_not_available)


def new_member(asked: Asking) -> str:
    """A name for a member, which begins with what its client calls itself."""
    return f"{asked.instance or asked.client[:100]}-{secrets.token_hex(16)}"


def _settle(waiting: Waiting | None, values: Values) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(values)


def _calm(member: Member) -> None:
    if member.expiry is not None:
        member.expiry.cancel()
        member.expiry = None

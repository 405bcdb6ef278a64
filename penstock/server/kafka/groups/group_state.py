"""State of one consumer group: its members and their rebalances, by Kafka's classic protocol.

States: EMPTY -> JOINING (members say which protocols they support) -> SYNCING (the leader assigns partitions) ->
STABLE, and back to JOINING when a member joins, leaves, or is silent for longer than its session.
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
MAX_MEMBER_BYTES = 1 << 18
"""Limits: bytes of a member's request, and of its assignment. A full group takes at most 250 MiB."""
PROTOCOL_BYTES = 200
"""Memory of a protocol in addition to its name and metadata."""
MAX_FIRST_GENERATION = 1 << 30
Waiter = asyncio.Future[Values]


class State(StrEnum):
    """Group states with Kafka's names."""

    EMPTY = "Empty"
    JOINING = "PreparingRebalance"
    SYNCING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class JoinRequest:
    """A member's request to join; ``session`` and ``rebalance`` are timeouts in seconds."""

    member: str
    instance: str | None
    client: str
    host: str
    session: float
    rebalance: float
    kind: str
    protocols: dict[str, bytes]

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of what the client chose: names and protocols."""
        names = (self.member, self.instance or "", self.client, self.kind, *self.protocols)
        # A character takes up to four bytes.
        return 4 * sum(map(len, names)) + sum(map(len, self.protocols.values())) + PROTOCOL_BYTES * len(self.protocols)


@dataclass(slots=True)
class Member:
    """A member. ``joining`` and ``syncing`` are the answers that it waits for."""

    id: str
    request: JoinRequest
    request_bytes: int = 0
    assignment: bytes = b""
    joining: Waiter | None = None
    syncing: Waiter | None = None
    expiry: asyncio.TimerHandle | None = field(default=None, repr=False)


class Refused(PenstockError):
    """A request that cannot be answered in the group's current state."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Group:
    """A consumer group, owned by one event loop. ``on_empty`` is called when its last member has left or expired."""

    def __init__(self, name: str, on_empty: Callable[[Group], None] = lambda _: None) -> None:
        self.name, self._on_empty = name, on_empty
        self.state = State.EMPTY
        # Random: a client that keeps its member id over a restart of the daemon, or beyond the end of an empty group,
        # must not have a generation in the new group, or its late requests would pass for current ones.
        self.generation = secrets.randbelow(MAX_FIRST_GENERATION)
        self.kind, self.protocol, self.leader = "", "", ""
        self.members: dict[str, Member] = {}
        self.memory_bytes = 0
        """Memory of all members at the last ``measure``."""
        self._loop = asyncio.get_running_loop()
        self.last_heard = self._loop.time()
        """Time of the last request of a member, by the loop's clock."""
        self._deadline: asyncio.TimerHandle | None = None

    def join(self, request: JoinRequest) -> Waiter:
        """Return the answer, which exists once all members have joined. Raises Refused."""
        member = self._member_for(request)
        is_repeated = member.request.protocols == request.protocols and member.request is not request
        member.request, member.request_bytes = request, request.memory_bytes
        waiting: Waiter = self._loop.create_future()
        # A member that repeats its request, as after a lost answer, gets it again without a rebalance. A leader that
        # joins a stable group asks for one.
        if (is_repeated and self.state is State.SYNCING) or (
            is_repeated and self.state is State.STABLE and member.id != self.leader
        ):
            self._restart_expiry(member)
            waiting.set_result(self._join_fields(member))
            return waiting
        # A member waits for one answer: the older request is refused.
        _answer(member.joining, {"error_code": ErrorCode.unknown_member_id})
        self.last_heard = self._loop.time()
        # The session does not run while the member waits for the others.
        member.joining = waiting
        _stop_expiry(member)
        self._rebalance()
        return waiting

    def _member_for(self, request: JoinRequest) -> Member:
        """Return the member of a request; add it if it is new. Raises Refused."""
        if self.members and (request.kind != self.kind or not self._has_common_protocol(request)):
            raise Refused(ErrorCode.inconsistent_group_protocol)
        if not request.protocols:
            raise Refused(ErrorCode.inconsistent_group_protocol)
        former = self._static_member(request.instance)
        if request.member:
            member = self.members.get(request.member)
            if member is None and former is not None:
                raise Refused(ErrorCode.fenced_instance_id)
            if member is not None:
                return member
        if former is not None:
            # A static member (KIP-345) that restarts replaces its former self, which is fenced.
            self._remove(former, ErrorCode.fenced_instance_id)
        if len(self.members) >= MAX_MEMBERS:
            raise Refused(ErrorCode.group_max_size_reached)
        self.kind = request.kind
        member = Member(request.member or new_member(request), request)
        self.members[member.id] = member
        return member

    def _static_member(self, instance: str | None) -> Member | None:
        return next((m for m in self.members.values() if instance is not None and m.request.instance == instance), None)

    def _has_common_protocol(self, request: JoinRequest) -> bool:
        """Return whether one protocol is supported by all members and the request."""
        replaced = self._static_member(request.instance)
        # Pairs are not enough: each pair might share another protocol.
        common = set(request.protocols)
        for member in self.members.values():
            if member.id != request.member and member is not replaced:
                common &= set(member.request.protocols)
        return bool(common)

    def _rebalance(self) -> None:
        """Ask all members to join again; begin a generation when all have, or at the deadline."""
        if self.state is not State.JOINING:
            self.state = State.JOINING
            for member in self.members.values():
                self._answer_sync(member, {"error_code": ErrorCode.rebalance_in_progress})
            longest = max((member.request.rebalance for member in self.members.values()), default=0.0)
            self._deadline = self._loop.call_later(longest, self._begin_generation)
        if all(member.joining is not None for member in self.members.values()):
            self._begin_generation()

    def _begin_generation(self) -> None:
        """Begin a generation of all members that have joined; remove the others."""
        if self._deadline is not None:
            self._deadline.cancel()
        for member in [member for member in self.members.values() if member.joining is None]:
            _stop_expiry(member)
            del self.members[member.id]
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = State.EMPTY, "", ""
            self._on_empty(self)
            return
        self.state = State.SYNCING
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.protocol = self._choose_protocol()
        for member in self.members.values():
            self._restart_expiry(member)
            _answer(member.joining, self._join_fields(member))
            member.joining = None

    def _choose_protocol(self) -> str:
        """Return the protocol that all members support and most prefer."""
        common = set.intersection(*(set(member.request.protocols) for member in self.members.values()))
        votes = Counter(
            next((name for name in member.request.protocols if name in common), "") for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _join_fields(self, member: Member) -> Values:
        # Only the leader gets the members, because it assigns the partitions.
        members = self.members.values() if member.id == self.leader else ()
        return {
            "generation_id": self.generation,
            "protocol_type": self.kind,
            "protocol_name": self.protocol,
            "leader": self.leader,
            "member_id": member.id,
            "members": [
                {
                    "member_id": m.id,
                    "group_instance_id": m.request.instance,
                    "metadata": m.request.protocols[self.protocol],
                }
                for m in members
                if self.protocol in m.request.protocols
            ],
        }

    def check_member(self, member: str, generation: int, instance: str | None = None) -> Member:
        """Return a member of the current generation. Raises Refused."""
        existing = self.members.get(member)
        if existing is None:
            fenced = self._static_member(instance) is not None
            raise Refused(ErrorCode.fenced_instance_id if fenced else ErrorCode.unknown_member_id)
        if generation != self.generation:
            raise Refused(ErrorCode.illegal_generation)
        return existing

    def sync(self, member: Member, assignments: dict[str, bytes]) -> Waiter:
        """Return the answer with the member's assignment, which exists once the leader has sent it. Raises Refused."""
        if self.state is State.JOINING:
            raise Refused(ErrorCode.rebalance_in_progress)
        if any(len(assignment) > MAX_MEMBER_BYTES for assignment in assignments.values()):
            # Cut, it would name fewer topics, which nobody would then read.
            raise Refused(ErrorCode.invalid_request)
        waiting: Waiter = self._loop.create_future()
        _answer(member.syncing, {"error_code": ErrorCode.unknown_member_id})
        member.syncing = waiting
        self._restart_expiry(member)
        if self.state is State.SYNCING and member.id == self.leader:
            for each in self.members.values():
                each.assignment = assignments.get(each.id, b"")
            self.state = State.STABLE
        if self.state is State.STABLE:
            for each in self.members.values():
                self._answer_sync(each, self._sync_fields(each))
        return waiting

    def _answer_sync(self, member: Member, values: Values) -> None:
        if member.syncing is not None:
            _answer(member.syncing, values)
            member.syncing = None
            self._restart_expiry(member)

    def _sync_fields(self, member: Member) -> Values:
        return {"protocol_type": self.kind, "protocol_name": self.protocol, "assignment": member.assignment}

    def heartbeat(self, member: Member) -> ErrorCode:
        """Restart the member's session; return ``rebalance_in_progress`` if it must join again, otherwise ``none``."""
        self._restart_expiry(member)
        return ErrorCode.rebalance_in_progress if self.state is State.JOINING else ErrorCode.none

    def leave(self, member: str, instance: str | None) -> ErrorCode:
        """Remove a member, or the static member of an administrator's request, which has no member id.

        Return the code of the answer.
        """
        static = self._static_member(instance)
        existing = self.members.get(member) if member else static
        if existing is None:
            # A static member that was replaced must not remove its successor.
            return ErrorCode.fenced_instance_id if static is not None else ErrorCode.unknown_member_id
        self._remove(existing, ErrorCode.unknown_member_id)
        self._rebalance()
        return ErrorCode.none

    def _restart_expiry(self, member: Member) -> None:
        self.last_heard = self._loop.time()
        _stop_expiry(member)
        member.expiry = self._loop.call_later(member.request.session, self._expire, member)

    def _expire(self, member: Member) -> None:
        waits = member.joining is not None or member.syncing is not None
        if self.members.get(member.id) is member and not waits:
            self._remove(member, ErrorCode.unknown_member_id)
            self._rebalance()

    def _remove(self, member: Member, code: ErrorCode) -> None:
        _stop_expiry(member)
        _answer(member.joining, {"error_code": code})
        _answer(member.syncing, {"error_code": code})
        self.members.pop(member.id, None)

    def measure(self) -> None:
        """Count the memory of all members again."""
        self.memory_bytes = sum(member.request_bytes + len(member.assignment) for member in self.members.values())

    def close(self) -> None:
        """Remove all members, and refuse the requests that wait."""
        if self._deadline is not None:
            self._deadline.cancel()
        for member in list(self.members.values()):
            self._remove(member, ErrorCode.coordinator_not_available)


def new_member(request: JoinRequest) -> str:
    """Return a new member id, which starts with the client's own name."""
    return f"{request.instance or request.client[:100]}-{secrets.token_hex(16)}"


def _answer(waiting: Waiter | None, values: Values) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(values)


def _stop_expiry(member: Member) -> None:
    if member.expiry is not None:
        member.expiry.cancel()
        member.expiry = None

"""Members of groups, clients of Kafka's classic protocol: they join, read, commit what they processed, and fail."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.kafka.records.varints import read_one
from penstock.server.kafka.records.decode import HEADER
from penstock.server.kafka.schema.messages import Api
from penstock.testing.simulation.groups.promises import GroupPromises, topics_of
from penstock.testing.simulation.groups.server import KafkaServer, request_frame
from penstock.testing.simulation.senders import World

SESSION_S, REBALANCE_S = 6.0, 12.0
HEARTBEAT_INTERVAL_S = 2.0
ANSWER_TIMEOUT_S, JOIN_TIMEOUT_S = 10.0, 20.0
COMMIT_SHARE, LEAVE_SHARE, COMMIT_AT_REBALANCE_SHARE = 0.3, 0.004, 0.6
"""Shares of steps of a consuming member that commit and leave, and of rebalances before which a member commits."""
KEEP_SHARE, REPEAT_SHARE, MAX_KEPT_FRAMES = 0.2, 0.5, 5
"""Shares of requests of which the network keeps a copy, and of steps in which it delivers one again."""
MAX_FETCH_BYTES = 2_000
VERSIONS = {
    Api.JOIN_GROUP: (1, 3, 5, 9),
    Api.SYNC_GROUP: (1, 3, 5),
    Api.HEARTBEAT: (1, 3, 4),
    Api.LEAVE_GROUP: (3, 5),
    Api.OFFSET_COMMIT: (2, 7, 8),
    Api.OFFSET_FETCH: (1, 5, 8),
    Api.FETCH: (5, 11, 12),
}
"""Versions of requests, of which each member has one."""
FIRST_STATIC_VERSION = {Api.JOIN_GROUP: 5, Api.SYNC_GROUP: 3, Api.HEARTBEAT: 3, Api.OFFSET_COMMIT: 7}
"""Version from which a request names a static member (KIP-345)."""


class State(StrEnum):
    """The next request of a member."""

    JOINING = "join"
    SYNCING = "sync"
    LOADING = "load the committed offsets"
    CONSUMING = "consume"


@dataclass(slots=True)
class Attempt:
    """A request in flight. ``is_lost``: its answer does not arrive; ``has_ended``: an answer, or none, has arrived."""

    life: int
    deadline: float
    is_lost: bool
    handle: Callable[[Any], None]
    answer: Any = None
    has_ended: bool = False

    def end(self, answer: Any) -> None:
        """Take the answer."""
        if not self.is_lost:
            self.answer, self.has_ended = answer, True


class Network:
    """The way to the server of the daemon's current life. Requests may arrive again, later."""

    def __init__(self, world: World, server: Callable[[], KafkaServer | None], dice: random.Random) -> None:
        self.world, self.server, self.dice = world, server, dice
        self.has_faults = True
        self._copies: list[bytes] = []

    def send(self, frame: bytes, timeout: float, handle: Callable[[Any], None]) -> Attempt | None:
        """Send a request; ``handle`` is for the answer. None: there is no server."""
        server, world = self.server(), self.world
        if server is None:
            return None
        attempt = Attempt(world.daemon.life, world.machine.clock.monotonic() + timeout, world.loses_answer(), handle)
        server.receive(frame, attempt.end)
        if self.has_faults and self.dice.random() < KEEP_SHARE:
            self._copies = [*self._copies, frame][-MAX_KEPT_FRAMES:]
        return attempt

    def step(self) -> None:
        """Deliver a copy of an earlier request, sometimes."""
        server = self.server()
        if self._copies and server is not None and self.has_faults and self.dice.random() < REPEAT_SHARE:
            frame = self._copies.pop(self.dice.randrange(len(self._copies)))
            server.receive(frame, lambda answer: None)


class Client(ABC):
    """A client with one request in flight."""

    def __init__(self, name: str, network: Network, dice: random.Random) -> None:
        self.name, self.network, self.dice = name, network, dice
        self._versions = {api: dice.choice(versions) for api, versions in VERSIONS.items()}
        self._attempt: Attempt | None = None

    @abstractmethod
    def step(self) -> None:
        """Take the answer that has arrived, and send the next request."""

    def send(
        self, api: Api, handle: Callable[[Any], None], values: Mapping[str, Any], timeout: float = ANSWER_TIMEOUT_S
    ) -> None:
        """Send a request."""
        frame = request_frame(api, self._versions[api], self.name, values)
        self._attempt = self.network.send(frame, timeout, handle)

    def take_answer(self) -> bool:
        """Handle the answer if it has arrived; report whether a request is still in flight."""
        attempt, world = self._attempt, self.network.world
        if attempt is None:
            return False
        if attempt.has_ended and attempt.answer is not None:
            self._attempt = None
            attempt.handle(attempt.answer)
        elif (
            attempt.has_ended or world.daemon.life != attempt.life or world.machine.clock.monotonic() > attempt.deadline
        ):
            self._attempt = None
        return self._attempt is not None

    def record(self, text: str) -> None:
        """Add a line to the trace."""
        self.network.world.record(self.name, text)


class Member(Client):
    """A member of a group, in several lives. ``instance``: a static member, or None."""

    def __init__(
        self,
        name: str,
        network: Network,
        dice: random.Random,
        promises: GroupPromises,
        topics: tuple[str, ...],
        instance: str | None = None,
    ) -> None:
        super().__init__(name, network, dice)
        self._promises, self._topics, self._instance = promises, topics, instance
        if instance is not None:
            for api, first in FIRST_STATIC_VERSION.items():
                self._versions[api] = max(self._versions[api], first)
        self.rest_until = 0
        """The step before which it takes none."""
        self.start()

    def start(self) -> None:
        """Begin a life, without anything of the last one."""
        self._attempt = None
        self.state, self._member, self.generation = State.JOINING, "", -1
        self._assigned: list[str] = []
        self._members: tuple[Any, ...] = ()
        self._is_leader = False
        self._positions: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._next_heartbeat = 0.0

    def step(self) -> None:
        """Take the answer that has arrived, and send the next request."""
        if self.take_answer() or not self.network.world.daemon.is_running:
            return
        match self.state:
            case State.JOINING:
                self._join()
            case State.SYNCING:
                self._sync()
            case State.LOADING:
                self._load()
            case State.CONSUMING:
                self._consume()

    def is_idle(self, ends: Mapping[str, int]) -> bool:
        """Report whether it has processed and committed everything that is assigned to it."""
        return (
            self.state is State.CONSUMING
            and self._promises.is_newest(self.generation)
            and all(self._committed.get(topic, 0) >= ends[topic] for topic in self._assigned)
        )

    @property
    def assigned(self) -> list[str]:
        """The topics of its assignment."""
        return self._assigned if self.state is State.CONSUMING else []

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": self._promises.name,
            "member_id": self._member,
            "generation_id": self.generation,
            "generation_id_or_member_epoch": self.generation,
            "group_instance_id": self._instance,
        }

    def _join(self) -> None:
        subscription = ",".join(self._topics).encode()
        names = ["range", "roundrobin"] if self.dice.random() < 0.9 else ["range"]
        values = {
            **self._identity,
            "session_timeout": _milliseconds(SESSION_S),
            "rebalance_timeout": _milliseconds(REBALANCE_S),
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": subscription} for name in names],
        }
        self.send(Api.JOIN_GROUP, self._joined, values, JOIN_TIMEOUT_S)

    def _joined(self, answer: Any) -> None:
        if answer.error_code is ErrorCode.member_id_required:
            self._member = answer.member_id
        elif answer.error_code is ErrorCode.none:
            self._member, self.generation = answer.member_id, answer.generation_id
            self._is_leader, self._members = answer.leader == answer.member_id, answer.members
            self.state = State.SYNCING
            self.record(f"joined generation {self.generation} as {'leader' if self._is_leader else 'follower'}")
        else:
            self._rejoin(answer.error_code)

    def _rejoin(self, code: ErrorCode) -> None:
        self.record(f"joins again: {code.name}")
        self.state = State.JOINING
        if code in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self._member, self.generation = "", -1

    def _sync(self) -> None:
        values = {**self._identity, "protocol_type": "consumer", "assignments": self._make_assignments()}
        self.send(Api.SYNC_GROUP, self._synced, values, JOIN_TIMEOUT_S)

    def _make_assignments(self) -> list[dict[str, Any]]:
        """Return the leader's assignment: each topic has one owner, and another one in the next generation."""
        assigned: dict[str, list[str]] = {member.member_id: [] for member in self._members if self._is_leader}
        subscriptions = {member.member_id: topics_of(member.metadata) for member in self._members}
        for number, topic in enumerate(self._topics if assigned else ()):
            candidates = [member for member in assigned if topic in subscriptions[member]]
            assigned[candidates[(number + self.generation) % len(candidates)]].append(topic)
        return [{"member_id": member, "assignment": ",".join(topics).encode()} for member, topics in assigned.items()]

    def _synced(self, answer: Any) -> None:
        if answer.error_code is not ErrorCode.none:
            self._rejoin(answer.error_code)
            return
        self._assigned = topics_of(answer.assignment)
        self._positions, self._committed = {}, {}
        self.state = State.LOADING if self._assigned else State.CONSUMING

    def _load(self) -> None:
        topics = [{"name": topic, "partition_indexes": (0,)} for topic in self._assigned]
        request = {"group_id": self._promises.name, "topics": topics}
        self.send(Api.OFFSET_FETCH, self._loaded, {**request, "groups": [request]})

    def _loaded(self, answer: Any) -> None:
        topics = (getattr(answer, "groups", None) or [answer])[0].topics
        offsets = {topic.name: topic.partitions[0] for topic in topics}
        if any(part.error_code is not ErrorCode.none for part in offsets.values()):
            return  # it asks again
        self._positions = {topic: max(part.committed_offset, 0) for topic, part in offsets.items()}
        self._committed = dict(self._positions)
        self.state = State.CONSUMING
        self.record(f"begins at {self._positions}")

    def _consume(self) -> None:
        if self.network.world.machine.clock.monotonic() >= self._next_heartbeat:
            self._next_heartbeat = self.network.world.machine.clock.monotonic() + HEARTBEAT_INTERVAL_S
            self.send(Api.HEARTBEAT, self._take_heartbeat, self._identity)
        elif self.network.has_faults and self.dice.random() < LEAVE_SHARE:
            self._leave()
        elif self._is_dirty and self.dice.random() < COMMIT_SHARE:
            self._commit()
        elif self._assigned:
            self._fetch()

    def _take_heartbeat(self, answer: Any) -> None:
        if answer.error_code is ErrorCode.none:
            return
        self._rejoin(answer.error_code)
        is_member = answer.error_code is ErrorCode.rebalance_in_progress
        if is_member and self._is_dirty and self.dice.random() < COMMIT_AT_REBALANCE_SHARE:
            self._commit()

    @property
    def _is_dirty(self) -> bool:
        return self._positions != self._committed

    def _commit(self) -> None:
        positions = {topic: offset for topic, offset in self._positions.items() if self._committed[topic] != offset}
        topics = [
            {
                "name": topic,
                "partitions": [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}],
            }
            for topic, offset in positions.items()
        ]
        self.send(
            Api.OFFSET_COMMIT, lambda answer: self._commit_done(answer, positions), {**self._identity, "topics": topics}
        )

    def _commit_done(self, answer: Any, positions: Mapping[str, int]) -> None:
        codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
        stored = {topic: offset for topic, offset in positions.items() if codes[topic] is ErrorCode.none}
        self._committed |= {topic: offset for topic, offset in stored.items() if topic in self._committed}
        refused = sorted(code.name for code in codes.values() if code is not ErrorCode.none)
        self.record(f"committed {stored}" + (f", refused: {', '.join(refused)}" if refused else ""))
        if self.state is State.CONSUMING:
            for code in codes.values():
                if code in (
                    ErrorCode.illegal_generation,
                    ErrorCode.unknown_member_id,
                    ErrorCode.fenced_instance_id,
                    ErrorCode.rebalance_in_progress,
                ):
                    self._rejoin(code)
                    return

    def _fetch(self) -> None:
        topics = [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": -1,
                        "fetch_offset": self._positions[topic],
                        "log_start_offset": -1,
                        "partition_max_bytes": self.dice.choice([1, MAX_FETCH_BYTES]),
                    }
                ],
            }
            for topic in self._assigned
        ]
        values = {"replica_id": -1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": topics}
        self.send(Api.FETCH, self._fetched, values)

    def _fetched(self, answer: Any) -> None:
        for response in answer.responses:
            part, topic = response.partitions[0], response.topic
            if part.error_code is ErrorCode.offset_out_of_range:
                # As with ``auto.offset.reset=earliest``.
                self.record(f"{self._positions[topic]} of {topic} is out of range: begins at {part.log_start_offset}")
                self._positions[topic] = part.log_start_offset
            elif part.error_code is ErrorCode.none and part.records:
                records, following = read_records(bytes(part.records), self._positions[topic])
                self._promises.process(topic, records)
                self._positions[topic] = following

    def _leave(self) -> None:
        leaver = {"member_id": self._member, "group_instance_id": self._instance}
        self.send(Api.LEAVE_GROUP, lambda answer: None, {"group_id": self._promises.name, "members": [leaver]})
        attempt = self._attempt
        self.start()
        self._attempt = attempt
        self.record("leaves")


def read_records(octets: bytes, position: int) -> tuple[list[tuple[int, bytes]], int]:
    """Return the records from ``position`` on of record batches, and the offset behind the batches."""
    records: list[tuple[int, bytes]] = []
    begin, following = 0, position
    while begin < len(octets):
        base, length, *_, last, _, _, _, _, _, count = HEADER.unpack_from(octets, begin)
        index = begin + HEADER.size
        for _ in range(count):
            size, index = read_one(octets, index)
            end = index + size
            _, index = read_one(octets, index + 1)
            delta, index = read_one(octets, index)
            key_size, index = read_one(octets, index)
            value_size, index = read_one(octets, index + max(key_size, 0))
            if base + delta >= position:
                records.append((base + delta, octets[index : index + max(value_size, 0)]))
            index = end
        following = max(following, base + last + 1)
        begin += 12 + length
    return records, following


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)

"""Clients next to the members: one creates and deletes, visitors use up limits and pretend to be members."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.server.kafka.groups import group_state, groups
from penstock.server.kafka.schema.messages import Api
from penstock.testing.simulation.groups.members import Client, Network
from penstock.testing.simulation.groups.server import request_frame
from penstock.testing.simulation.promises import Broken

TOOLS, SCRATCH = "tools", "scratch"
"""A group without members, and a topic without messages."""
MAX_OFFSET = 100
VISIT_SESSION_MS = 1_500
TIMEOUT_S = 10.0


class Administrator(Client):
    """Moves the offset of a group without members, deletes it, its topic, and the groups of members."""

    def __init__(self, network: Network, dice: random.Random, group_names: tuple[str, ...]) -> None:
        super().__init__("administrator", network, dice)
        self._versions |= {
            Api.CREATE_TOPICS: 5,
            Api.DELETE_TOPICS: dice.choice([1, 5]),
            Api.DELETE_GROUPS: dice.choice([0, 2]),
        }
        self._groups = group_names

    def step(self) -> None:
        """Take the answer that has arrived, and send the next request."""
        if self.take_answer() or not self.network.world.daemon.is_running or not self.network.has_faults:
            return
        partition = {"partition_index": 0, "committed_offset": self.dice.randrange(MAX_OFFSET)}
        topic = {"name": SCRATCH, "partitions": [partition], "partition_indexes": (0,)}
        request = {"group_id": TOOLS, "topics": [topic], "generation_id": -1, "generation_id_or_member_epoch": -1}
        name = TOOLS if self.dice.random() < 0.7 else self.dice.choice(self._groups)
        requests: list[tuple[Api, dict[str, Any]]] = [
            (Api.CREATE_TOPICS, {"topics": [{"name": SCRATCH, "num_partitions": 1, "replication_factor": 1}]}),
            (Api.OFFSET_COMMIT, request),
            (Api.OFFSET_COMMIT, request),
            (Api.OFFSET_FETCH, {**request, "groups": [request]}),
            (Api.DELETE_TOPICS, {"topic_names": [SCRATCH]}),
            (Api.DELETE_GROUPS, {"groups_names": [name]}),
        ]
        api, values = self.dice.choice(requests)
        self.send(api, lambda answer: self._record_done(api, name), values)

    def _record_done(self, api: Api, name: str) -> None:
        self.record(f"{api.name.lower()} {name if api is Api.DELETE_GROUPS else SCRATCH} is answered")


class Visitors:
    """Clients that send one request each, and never come again."""

    def __init__(self, network: Network, dice: random.Random, group_names: tuple[str, ...]) -> None:
        self.name, self._network, self._dice, self._groups = "visitor", network, dice, group_names
        self._visits = 0

    def step(self) -> None:
        """Send a request."""
        self._visits += 1
        name = self._dice.choice(self._groups)
        visit = self._dice.choice(
            [self._join_new_group, self._join_crowd, self._join_group, self._send_too_much, self._pretend, self._look]
        )
        visit(name)

    def _send(self, api: Api, version: int, values: dict[str, Any], check: Callable[[Any], None]) -> None:
        frame = request_frame(api, version, self.name, values)
        server = self._network.server()
        if server is not None:
            server.receive(frame, lambda answer: None if answer is None else check(answer))

    def _join(self, group: str, protocols: list[dict[str, Any]], check: Callable[[Any], None]) -> None:
        values = {
            "group_id": group,
            "session_timeout": VISIT_SESSION_MS,
            "rebalance_timeout": VISIT_SESSION_MS,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        # Version 1 joins at once; a later one gets its id first.
        self._send(Api.JOIN_GROUP, 1, values, check)

    def _join_new_group(self, name: str) -> None:
        self._join(f"visit {self._visits}", [{"name": "range", "metadata": b""}], _ignore)

    def _join_crowd(self, name: str) -> None:
        self._join("crowd", [{"name": "range", "metadata": b""}], _ignore)

    def _join_group(self, name: str) -> None:
        self._join(name, [{"name": "range", "metadata": b""}], _ignore)

    def _send_too_much(self, name: str) -> None:
        size = group_state.MAX_MEMBER_BYTES
        by_metadata = [{"name": "range", "metadata": bytes(size + 1)}]
        by_names = [{"name": "range", "metadata": b""}, {"name": "x" * size, "metadata": b""}]
        self._join(name, self._dice.choice([by_metadata, by_names]), _check_refused)

    def _pretend(self, name: str) -> None:
        """Commit as a member that the group does not have."""
        topic = {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1}]}
        identity = {"member_id": "nobody", "generation_id": self._dice.randrange(5)}
        self._send(Api.OFFSET_COMMIT, 2, {"group_id": name, **identity, "topics": [topic]}, _check_not_committed)

    def _look(self, name: str) -> None:
        self._send(Api.LIST_GROUPS, 4, {"states_filter": ("Stable", "PreparingRebalance")}, _check_number_of_groups)
        self._send(Api.DESCRIBE_GROUPS, 5, {"groups": [name, "crowd"]}, _check_sizes)


def _ignore(answer: Any) -> None: ...


def _check_refused(answer: Any) -> None:
    if answer.error_code is ErrorCode.none:
        raise Broken("a member with protocols over the limit has joined")


def _check_not_committed(answer: Any) -> None:
    if any(topic.partitions[0].error_code is ErrorCode.none for topic in answer.topics):
        raise Broken("a commit of a member that the group does not have is accepted")


def _check_number_of_groups(answer: Any) -> None:
    if len(answer.groups) > groups.MAX_GROUPS:
        raise Broken(f"{len(answer.groups)} groups have members: the limit is {groups.MAX_GROUPS}")


def _check_sizes(answer: Any) -> None:
    for group in answer.groups:
        if len(group.members) > group_state.MAX_MEMBERS:
            raise Broken(f"group {group.group_id} has {len(group.members)} members: {group_state.MAX_MEMBERS} may be")

"""ApiVersions, Metadata, FindCoordinator and descriptions of the cluster: one broker, one partition per topic."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log import UnknownTopic
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.permitted_topics import check_name
from penstock.server.auth.rights import Principal
from penstock.server.kafka.calls import Call, code_of
from penstock.server.kafka.errors import NO_TRANSACTIONS
from penstock.server.kafka.schema.messages import VERSIONS, Api, Values

BROKER = 0
"""Id of the only broker."""
CLUSTER = "penstock"
NAMESPACE = uuid.UUID("b8e6d6e4-6a4f-4c1e-9a55-0d7f4f0c6f2a")
"""Namespace of topic ids. A topic that is deleted and created again keeps its id, because its offsets continue."""
GROUP_KEY_TYPE = 0
"""Key type of FindCoordinator for groups; the other types belong to transactions and share groups."""
CREATIONS_AT_ONCE, CREATIONS_PER_S = 100, 0.5
"""Limit: topics that one client creates at once, and then per second, by metadata requests and CreateTopics."""
MAX_CLIENTS = 10_000
"""Limit: addresses whose quota is remembered."""
KAFKA_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION = {
    "leader_id": BROKER,
    "leader_epoch": 0,
    "replica_nodes": (BROKER,),
    "isr_nodes": (BROKER,),
    "eligible_leader_replicas": (),
    "last_known_elr": (),
}


def topic_id(name: str) -> uuid.UUID:
    """Return the id of a topic."""
    return uuid.uuid5(NAMESPACE, name)


def api_versions(unknown: bool = False) -> Values:
    """Return the supported versions; ``unknown`` answers an unsupported version of ApiVersions."""
    keys = [{"api_key": api, "min_version": first, "max_version": last} for api, (first, last) in VERSIONS.items()]
    for key in keys:
        if key["api_key"] == Api.PRODUCE:
            # Workaround: librdkafka compresses only if Produce 0 is announced. Versions below the real minimum are
            # refused.
            key["min_version"] = 0
    return {"error_code": ErrorCode.unsupported_version if unknown else 0, "api_keys": keys}


def topic_exists(api: EntriesApi, name: str) -> bool:
    """Report whether a topic exists. Raises PenstockError if it cannot be opened, or its name is not valid."""
    try:
        return api.topics.is_open(name) or bool(api.topics.log.topic(name))
    except UnknownTopic:
        return False


class CreationQuota:
    """Topics that each client may still create, by client address. Thread-safe.

    Used quota returns at CREATIONS_PER_S.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._full_at: dict[str, float] = {}

    def use_one(self, host: str) -> bool:
        """Return whether the client may create one more topic, and count it."""
        now = self._clock()
        with self._lock:
            full_at = max(self._full_at.get(host, now), now) + 1 / CREATIONS_PER_S
            if full_at - now > CREATIONS_AT_ONCE / CREATIONS_PER_S:
                return False
            # Limit: forget clients whose quota is full again.
            if len(self._full_at) >= MAX_CLIENTS:
                self._full_at = {client: time for client, time in self._full_at.items() if time > now}
            self._full_at[host] = full_at
            return True


class Cluster:
    """Handlers of requests about the cluster and its topics."""

    def __init__(self, api: EntriesApi, quota: CreationQuota | None = None) -> None:
        self._api, self._quota = api, quota or CreationQuota()

    async def metadata(self, call: Call) -> Values:
        """Return the broker and the requested topics; create missing ones if the client asks for it and may."""
        message = call.message
        # Version 0 has no null arrays, so an empty array means all topics.
        all_topics = message.topics is None or (call.version == 0 and not message.topics)
        names = None if all_topics else [topic.name or "" for topic in message.topics]
        create = getattr(message, "allow_auto_topic_creation", True)
        topics = await self._api.run(lambda: self._topics(call.caller, names, call.host if create else None))
        host, port = call.address
        broker = {"node_id": BROKER, "host": host, "port": port}
        return {"brokers": [broker], "cluster_id": CLUSTER, "controller_id": BROKER, "topics": topics}

    def _topics(self, caller: Principal, names: Iterable[str] | None, creator: str | None = None) -> list[Values]:
        if names is None:
            return [self._topic(caller, name) for name in self._api.topics.names(caller)]
        return [self._topic(caller, name, creator) for name in names]

    def _topic(self, caller: Principal, name: str, creator: str | None = None) -> Values:
        """Return a topic. If it is missing, create it if client ``creator`` has the right and quota."""
        topics = self._api.topics
        try:
            if creator is not None and name[:1] != "_" and caller.writes(name, topics.log.settings(name)):
                check_name(name)
                # Limit: a metadata request with many random names must not create as many topics.
                if not topic_exists(self._api, name) and not self._quota.use_one(creator):
                    return {"error_code": ErrorCode.throttling_quota_exceeded, "name": name}
                topics.writable(name, caller)
            elif not caller.writes(name, topics.log.settings(name)):
                topics.readable(name, caller)
            else:
                topics.log.topic(name, internal=caller.reads(name, topics.log.settings(name)))
        except PenstockError as error:
            code = code_of(error)
            if code is ErrorCode.invalid_topic_exception and creator is None and KAFKA_NAME.fullmatch(name):
                # Kafka allows this name, so the topic is missing, not invalid: Kafka Streams then creates it and gets
                # the reason.
                code = ErrorCode.unknown_topic_or_partition
            return {"error_code": code, "name": name}
        fields = {"name": name, "topic_id": topic_id(name), "is_internal": name[:1] == "_"}
        return {**fields, "partitions": [_PARTITION]}

    async def describe_topic_partitions(self, call: Call) -> Values:
        """Describe topics by name."""
        names = [topic.name for topic in call.message.topics] or None
        return {"topics": await self._api.run(lambda: self._topics(call.caller, names))}

    async def describe_cluster(self, call: Call) -> Values:
        """Describe the only broker."""
        host, port = call.address
        return {
            "cluster_id": CLUSTER,
            "controller_id": BROKER,
            "endpoint_type": getattr(call.message, "endpoint_type", 1),
            "brokers": [{"broker_id": BROKER, "host": host, "port": port}],
            "cluster_authorized_operations": -(2**31),
        }

    async def find_coordinator(self, call: Call) -> Values:
        """Name this broker as coordinator of all groups, and none for transactions."""
        message, (host, port) = call.message, call.address
        coordinator: dict[str, Any] = {"node_id": BROKER, "host": host, "port": port}
        if getattr(message, "key_type", GROUP_KEY_TYPE) != GROUP_KEY_TYPE:
            code = ErrorCode.transactional_id_authorization_failed
            coordinator = {"node_id": -1, "error_code": code, "error_message": NO_TRANSACTIONS}
        keys = getattr(message, "coordinator_keys", None)
        return coordinator if keys is None else {"coordinators": [{"key": key, **coordinator} for key in keys]}

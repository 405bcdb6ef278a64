"""ApiVersions, Metadata and what else clients ask before they begin: one broker, one partition of each topic."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.server.auth.rights import Principal
from penstock.server.entries_api import EntriesApi
from penstock.server.kafka.calls import Call, code_of
from penstock.server.kafka.messages import VERSIONS, Api, Values

BROKER = 0
"""The number of the one broker."""
CLUSTER = "penstock"
NAMESPACE = uuid.UUID("b8e6d6e4-6a4f-4c1e-9a55-0d7f4f0c6f2a")
"""Of the ids of topics: the same name has the same id, as its offsets go on where it was deleted."""
GROUP = 0
"""What a coordinator is asked for; everything else is for transactions."""
NO_TRANSACTIONS = "Penstock has no transactions of Kafka"
_PARTITION = {
    "leader_id": BROKER,
    "leader_epoch": 0,
    "replica_nodes": (BROKER,),
    "isr_nodes": (BROKER,),
    "eligible_leader_replicas": (),
    "last_known_elr": (),
}


def topic_id(name: str) -> uuid.UUID:
    """The id of a topic."""
    return uuid.uuid5(NAMESPACE, name)


def api_versions(unknown: bool = False) -> Values:
    """What is spoken; ``unknown``: to one who asked in a version that is not."""
    keys = [{"api_key": api, "min_version": first, "max_version": last} for api, (first, last) in VERSIONS.items()]
    for key in keys:
        if key["api_key"] == Api.PRODUCE:  # older ones are not taken; librdkafka compresses only where they are named
            key["min_version"] = 0
    return {"error_code": ErrorCode.unsupported_version if unknown else 0, "api_keys": keys}


class Cluster:
    """Answers what is where."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    async def metadata(self, call: Call) -> Values:
        """The broker, and the topics asked for; they are created where the client wants that and may."""
        message = call.message
        every = message.topics is None or (call.version == 0 and not message.topics)
        names = None if every else [topic.name or "" for topic in message.topics]
        create = getattr(message, "allow_auto_topic_creation", True)
        topics = await self._api.run(lambda: self._topics(call.caller, names, create=create))
        host, port = call.address
        broker = {"node_id": BROKER, "host": host, "port": port}
        return {"brokers": [broker], "cluster_id": CLUSTER, "controller_id": BROKER, "topics": topics}

    def _topics(self, caller: Principal, names: Iterable[str] | None, *, create: bool) -> list[Values]:
        if names is None:
            return [self._topic(caller, name) for name in self._api.topics.names(caller)]
        return [self._topic(caller, name, create=create) for name in names]

    def _topic(self, caller: Principal, name: str, *, create: bool = False) -> Values:
        topics = self._api.topics
        try:
            if create and name[:1] != "_" and caller.writes(name, topics.log.settings(name)):
                topics.writable(name, caller)
            elif not caller.writes(name, topics.log.settings(name)):
                topics.readable(name, caller)
            else:
                topics.log.topic(name, internal=caller.reads(name, topics.log.settings(name)))
        except PenstockError as error:
            return {"error_code": code_of(error), "name": name}
        known = {"name": name, "topic_id": topic_id(name), "is_internal": name[:1] == "_"}
        return {**known, "partitions": [_PARTITION]}

    async def describe_topic_partitions(self, call: Call) -> Values:
        """The same of topics by name."""
        names = [topic.name for topic in call.message.topics] or None
        return {"topics": await self._api.run(lambda: self._topics(call.caller, names, create=False))}

    async def describe_cluster(self, call: Call) -> Values:
        """The one broker."""
        host, port = call.address
        return {
            "cluster_id": CLUSTER,
            "controller_id": BROKER,
            "endpoint_type": getattr(call.message, "endpoint_type", 1),
            "brokers": [{"broker_id": BROKER, "host": host, "port": port}],
            "cluster_authorized_operations": -(2**31),
        }

    async def find_coordinator(self, call: Call) -> Values:
        """We are the coordinator of all groups; there is none of transactions."""
        message, (host, port) = call.message, call.address
        found: dict[str, Any] = {"node_id": BROKER, "host": host, "port": port}
        if getattr(message, "key_type", GROUP) != GROUP:
            code = ErrorCode.transactional_id_authorization_failed
            found = {"node_id": -1, "error_code": code, "error_message": NO_TRANSACTIONS}
        keys = getattr(message, "coordinator_keys", None)
        return found if keys is None else {"coordinators": [{"key": key, **found} for key in keys]}

"""CreateTopics, DeleteTopics and DescribeConfigs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log import TopicSettings
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import Principal
from penstock.server.kafka.calls import Call, code_of
from penstock.server.kafka.limits import MAX_REQUEST_BYTES
from penstock.server.kafka.metadata.cluster import BROKER, topic_id
from penstock.server.kafka.schema.messages import Values

TOPIC, BROKERS = 2, 4
"""Kinds of resources."""
DYNAMIC, DEFAULT = 1, 5
"""Where a setting comes from: the topic's own, or what is so anyway."""
STRING, LONG = 2, 5
"""Types of settings."""
_FIXED = {
    "cleanup.policy": "delete",
    "compression.type": "uncompressed",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "1",
}
"""Settings of Kafka that cannot be others."""
_BROKER = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "log.message.timestamp.type": "LogAppendTime",
    "message.max.bytes": str(MAX_REQUEST_BYTES),
    "min.insync.replicas": "1",
    "num.partitions": "1",
}
"""Settings of the broker that clients and tools ask for."""
_IGNORED = ("cleanup.policy", "compression.type", "message.timestamp.type", "min.insync.replicas", "flush.messages")
"""Those that may be given all the same, as many clients do."""
_FOREVER = 1 << 62


class Topics:
    """Makes and removes topics, and tells their settings."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api

    async def create(self, call: Call) -> Values:
        """Topics with one partition and one replica."""
        dry = call.message.validate_only
        return {"topics": await self._api.run(lambda: [self._create(call, one, dry) for one in call.message.topics])}

    def _create(self, call: Call, asked: Any, dry: bool) -> Values:
        if (refused := _cannot_be(asked)) is not None:
            return {"name": asked.name, **refused}
        try:
            changes = _changes({config.name: config.value for config in asked.configs})
            if not dry:
                self._api.manage.create(asked.name, changes, call.caller)
        except ValueError as error:
            return {"name": asked.name, "error_code": ErrorCode.invalid_config, "error_message": str(error)}
        except PenstockError as error:
            return {"name": asked.name, **_told(error)}
        settings = self._configs(asked.name)
        return {
            "name": asked.name,
            "topic_id": topic_id(asked.name),
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": settings,
        }

    async def delete(self, call: Call) -> Values:
        """Topics with all that is in them."""
        names = call.message.topic_names
        return {"responses": await self._api.run(lambda: [self._delete(call.caller, name) for name in names])}

    def _delete(self, caller: Principal, name: str) -> Values:
        try:
            self._api.manage.delete(name, caller)
        except PenstockError as error:
            return {"name": name, **_told(error)}
        return {"name": name}

    async def describe_configs(self, call: Call) -> Values:
        """What of a topic's settings Kafka has a name for."""
        return {"results": await self._api.run(lambda: [self._describe(call, one) for one in call.message.resources])}

    def _describe(self, call: Call, asked: Any) -> Values:
        known = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
        if asked.resource_type == BROKERS and asked.resource_name in ("", str(BROKER)):
            configs = [_config(name, value, DEFAULT, STRING) for name, value in _BROKER.items()]
            return {**known, "configs": [one for one in configs if _is_wanted(asked, one)]}
        if asked.resource_type != TOPIC:
            return {**known, "error_code": ErrorCode.invalid_request, "error_message": "there are topics and a broker"}
        try:
            self._api.topics.readable(asked.resource_name, call.caller)
        except PenstockError as error:
            return {**known, **_told(error)}
        return {**known, "configs": [one for one in self._configs(asked.resource_name) if _is_wanted(asked, one)]}

    def _configs(self, name: str) -> list[Values]:
        settings = self._api.topics.log.settings(name)
        own = [_config(key, tell(settings), DYNAMIC, LONG) for key, (_, _, tell) in _SETTINGS.items()]
        return own + [_config(key, value, DEFAULT, STRING) for key, value in _FIXED.items()]


def _is_wanted(asked: Any, config: Values) -> bool:
    return asked.configuration_keys is None or config["name"] in asked.configuration_keys


def _config(name: str, value: str, source: int, kind: int) -> Values:
    return {"name": name, "value": value, "read_only": source == DEFAULT, "config_source": source, "config_type": kind}


def _told(error: PenstockError) -> Values:
    return {"error_code": code_of(error), "error_message": str(error)}


def _cannot_be(asked: Any) -> Values | None:
    partitions = len(asked.assignments) or asked.num_partitions
    if partitions not in (-1, 1):
        return {"error_code": ErrorCode.invalid_partitions, "error_message": "A topic of Penstock has one partition"}
    if asked.replication_factor not in (-1, 1) and not asked.assignments:
        text = "A topic of Penstock has one replica"
        return {"error_code": ErrorCode.invalid_replication_factor, "error_message": text}
    return None


_Setting = tuple[str, Callable[[int], object], Callable[[TopicSettings], str]]


def _millis(seconds: float) -> str:
    return "-1" if math.isinf(seconds) else str(round(seconds * 1000))


def _seconds(millis: int) -> float:
    return millis / 1000 if millis >= 0 else float(_FOREVER // 1000)


_SETTINGS: Mapping[str, _Setting] = {
    "retention.ms": ("stale_after", _seconds, lambda known: _millis(known.stale_after)),
    "retention.bytes": ("retain_bytes", lambda size: max(size, 0), lambda known: str(known.retain_bytes or -1)),
    "segment.bytes": ("segment_size_limit", int, lambda known: str(known.segment_size_limit)),
    "segment.ms": ("rotate_after", _seconds, lambda known: _millis(known.rotate_after)),
    "max.message.bytes": ("message_size_limit", int, lambda known: str(known.message_size_limit)),
}
"""For each setting of Kafka the topic's own, what makes its value, and how it is told."""


def _changes(configs: Mapping[str, str | None]) -> dict[str, object]:
    """The topic's settings. Raises ValueError for one that there is not."""
    found: dict[str, object] = {}
    for name, value in configs.items():
        if name in _SETTINGS:
            ours, make, _ = _SETTINGS[name]
            try:
                found[ours] = make(int(value or ""))
            except ValueError:
                raise ValueError(f"{name}: {value!r} is no number") from None
        elif _FIXED.get(name, value) != value and name != "compression.type":
            raise ValueError(f"{name}: a topic of Penstock has {_FIXED[name]}")
        elif name not in _IGNORED:
            raise ValueError(f"{name}: Penstock has no such setting")
    return found

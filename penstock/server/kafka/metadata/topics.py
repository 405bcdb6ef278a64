"""CreateTopics, DeleteTopics and DescribeConfigs: topic settings under Kafka's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log import TopicSettings
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import ANONYMOUS
from penstock.server.kafka.calls import Call, code_of
from penstock.server.kafka.limits import MAX_REQUEST_BYTES
from penstock.server.kafka.metadata.cluster import BROKER, CREATIONS_PER_S, CreationQuota, topic_exists, topic_id
from penstock.server.kafka.records.creation_times import MAX_AHEAD_MS
from penstock.server.kafka.schema.messages import Values

TOPIC, BROKERS = 2, 4
"""Resource types."""
DYNAMIC, DEFAULT = 1, 5
"""Source of a setting: set for the topic, or fixed."""
STRING, LONG = 2, 5
"""Value types of settings."""
_FIXED = {
    "cleanup.policy": "delete",
    "compression.type": "uncompressed",
    "message.timestamp.after.max.ms": str(MAX_AHEAD_MS),
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "min.insync.replicas": "1",
}
"""Kafka settings with only one possible value."""
_BROKER = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "message.max.bytes": str(MAX_REQUEST_BYTES),
    "min.insync.replicas": "1",
    "num.partitions": "1",
}
"""Broker settings that clients and tools request."""
_IGNORED = (*_FIXED, "flush.messages")
"""Settings that are accepted without effect, because many clients send them."""
TIMESTAMP_TYPE = "message.timestamp.type"
_TIMESTAMP_TYPES = {"append": "LogAppendTime", "create": "CreateTime"}
"""Kafka's names of the log's ``timestamp_type``."""
_FOREVER_MS = 1 << 62
"""Kafka's -1, no limit, as a number that fits the settings."""


class Topics:
    """Handlers that create, delete and describe topics."""

    def __init__(self, api: EntriesApi, quota: CreationQuota) -> None:
        self._api, self._quota = api, quota

    async def create(self, call: Call) -> Values:
        """Create topics with one partition and one replica."""
        validate_only = call.message.validate_only
        topics = await self._api.run(
            lambda: [self._create(call, topic, validate_only) for topic in call.message.topics]
        )
        is_throttled = any(topic.get("error_code") is ErrorCode.throttling_quota_exceeded for topic in topics)
        # Kafka's own admin client repeats the refused topics after this time.
        return {"throttle_time_ms": int(is_throttled * 1000 / CREATIONS_PER_S), "topics": topics}

    def _create(self, call: Call, topic: Any, validate_only: bool) -> Values:
        if (shape_error := _shape_error(topic)) is not None:
            return {"name": topic.name, **shape_error}
        try:
            changes = _parse_settings({config.name: config.value for config in topic.configs})
            if not validate_only:
                if not self._has_quota(call, topic.name):
                    code = ErrorCode.throttling_quota_exceeded
                    return {"name": topic.name, "error_code": code, "error_message": "too many new topics; retry"}
                self._api.manage.create(topic.name, changes, call.caller)
                self._api.manage.record(f"create topic {topic.name}", call.caller, call.host)
        except ValueError as error:
            return {"name": topic.name, "error_code": ErrorCode.invalid_config, "error_message": str(error)}
        except PenstockError as error:
            return {"name": topic.name, **_error_fields(error)}
        settings = self._configs(topic.name)
        return {
            "name": topic.name,
            "topic_id": topic_id(topic.name),
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": settings,
        }

    def _has_quota(self, call: Call, name: str) -> bool:
        """Count a new topic of a client without a name; the token of an administrator has no quota."""
        # Limit: one request with many names must not create topics up to the limit of all.
        return call.caller != ANONYMOUS or topic_exists(self._api, name) or self._quota.use_one(call.host)

    async def delete(self, call: Call) -> Values:
        """Delete topics with all of their entries."""
        names = call.message.topic_names
        return {"responses": await self._api.run(lambda: [self._delete(call, name) for name in names])}

    def _delete(self, call: Call, name: str) -> Values:
        try:
            self._api.manage.delete(name, call.caller)
            self._api.manage.record(f"delete topic {name}", call.caller, call.host)
        except PenstockError as error:
            return {"name": name, **_error_fields(error)}
        return {"name": name}

    async def describe_configs(self, call: Call) -> Values:
        """Return the settings that have a name in Kafka."""
        return {
            "results": await self._api.run(
                lambda: [self._describe(call, resource) for resource in call.message.resources]
            )
        }

    def _describe(self, call: Call, resource: Any) -> Values:
        fields = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        if resource.resource_type == BROKERS and resource.resource_name in ("", str(BROKER)):
            timestamp_type = _TIMESTAMP_TYPES[self._api.topics.log.settings("").timestamp_type]
            broker_settings = {**_BROKER, "log.message.timestamp.type": timestamp_type}
            configs = [_config(name, value, DEFAULT, STRING) for name, value in broker_settings.items()]
            return {**fields, "configs": [config for config in configs if _is_requested(resource, config)]}
        if resource.resource_type != TOPIC:
            return {
                **fields,
                "error_code": ErrorCode.invalid_request,
                "error_message": "only topics and the broker have settings",
            }
        try:
            self._api.topics.readable(resource.resource_name, call.caller)
        except PenstockError as error:
            return {**fields, **_error_fields(error)}
        return {
            **fields,
            "configs": [config for config in self._configs(resource.resource_name) if _is_requested(resource, config)],
        }

    def _configs(self, name: str) -> list[Values]:
        settings = self._api.topics.log.settings(name)
        topic_configs = [
            _config(key, format_setting(settings), DYNAMIC, LONG) for key, (_, _, format_setting) in _SETTINGS.items()
        ]
        topic_configs.append(_config(TIMESTAMP_TYPE, _TIMESTAMP_TYPES[settings.timestamp_type], DYNAMIC, STRING))
        return topic_configs + [_config(key, value, DEFAULT, STRING) for key, value in _FIXED.items()]


def _is_requested(resource: Any, config: Values) -> bool:
    return resource.configuration_keys is None or config["name"] in resource.configuration_keys


def _config(name: str, value: str, source: int, kind: int) -> Values:
    return {"name": name, "value": value, "read_only": source == DEFAULT, "config_source": source, "config_type": kind}


def _error_fields(error: PenstockError) -> Values:
    return {"error_code": code_of(error), "error_message": str(error)}


def _shape_error(topic: Any) -> Values | None:
    """Return the error for a topic with several partitions or replicas, else None."""
    partitions = len(topic.assignments) or topic.num_partitions
    if partitions not in (-1, 1):
        return {
            "error_code": ErrorCode.invalid_partitions,
            "error_message": "a topic of Penstock has exactly one partition",
        }
    if topic.replication_factor not in (-1, 1) and not topic.assignments:
        text = "a topic of Penstock has exactly one replica"
        return {"error_code": ErrorCode.invalid_replication_factor, "error_message": text}
    return None


_SettingFormat = tuple[str, Callable[[int], object], Callable[[TopicSettings], str]]


def _millis(seconds: float) -> str:
    return "-1" if math.isinf(seconds) else str(round(seconds * 1000))


def _seconds(millis: int) -> float:
    return millis / 1000 if millis >= 0 else float(_FOREVER_MS // 1000)


_SETTINGS: Mapping[str, _SettingFormat] = {
    "retention.ms": ("stale_after", _seconds, lambda settings: _millis(settings.stale_after)),
    "retention.bytes": ("retain_bytes", lambda size: max(size, 0), lambda settings: str(settings.retain_bytes or -1)),
    "segment.bytes": ("segment_size_limit", int, lambda settings: str(settings.segment_size_limit)),
    "segment.ms": ("rotate_after", _seconds, lambda settings: _millis(settings.rotate_after)),
    "max.message.bytes": ("message_size_limit", int, lambda settings: str(settings.message_size_limit)),
}
"""Kafka's name of a setting: the log's name, conversion from Kafka's number, and conversion to Kafka's text."""


def _parse_settings(configs: Mapping[str, str | None]) -> dict[str, object]:
    """Return the log's settings. Raises ValueError for unsupported settings or values."""
    settings: dict[str, object] = {}
    log_types = {kafka_type: log_type for log_type, kafka_type in _TIMESTAMP_TYPES.items()}
    for name, value in configs.items():
        if name == TIMESTAMP_TYPE:
            if value not in log_types:
                raise ValueError(f"{name}: {value!r} is neither of {', '.join(log_types)}")
            settings["timestamp_type"] = log_types[value]
        elif name in _SETTINGS:
            log_name, make, _ = _SETTINGS[name]
            try:
                settings[log_name] = make(int(value or ""))
            except ValueError:
                raise ValueError(f"{name}: {value!r} is not a number") from None
        # Producers choose the compression; a topic's compression.type is ignored, whatever it is.
        elif _FIXED.get(name, value) != value and name != "compression.type":
            raise ValueError(f"{name}: only {_FIXED[name]} is supported")
        elif name not in _IGNORED:
            raise ValueError(f"{name}: not a setting of a Penstock topic")
    return settings

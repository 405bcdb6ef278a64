"""Load plug-ins named in a configuration: serializers, auditors, partitioners.

A name is that of an entry point, of one of ours, or a path ``module:Name`` (or ``module.Name``). A setting may also be
an object or a class. Classes are created without arguments. A plug-in with a ``configure`` method receives the
configuration.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from penstock.errors import PenstockError
from penstock.kafka.auditing import Auditor, LedgerAuditor, LoggingAuditor, NoOpAuditor
from penstock.kafka.large.chunks import ChunkDeserializer, ChunkSerializer, deserialize_chunk, serialize_chunk
from penstock.kafka.large.splitter import IdFactory, random_id

CHUNK_SERIALIZERS = "penstock.kafka.segment_serializers"
CHUNK_DESERIALIZERS = "penstock.kafka.segment_deserializers"
ID_FACTORIES = "penstock.kafka.id_factories"
AUDITORS = "penstock.kafka.auditors"
BUILTIN_AUDITORS: Mapping[str, type[Auditor]] = {
    "NoOpAuditor": NoOpAuditor,
    "LoggingAuditor": LoggingAuditor,
    "LedgerAuditor": LedgerAuditor,
    "none": NoOpAuditor,
    "logging": LoggingAuditor,
    "ledger": LedgerAuditor,
}
JAVA_PACKAGE = "com.linkedin.kafka.clients."
"""Prefix of the Java library's class names, which select our class of the same name."""


class CannotLoad(PenstockError, ValueError):
    """A plug-in named in the configuration does not exist or has the wrong type."""


def load(key: str, setting: Any, group: str, builtin: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """Create and configure the plug-in that ``key`` names; ``builtin`` maps names to ours. Raises CannotLoad."""
    plugin = _find_plugin(key, setting, group, builtin) if isinstance(setting, str) else setting
    try:
        instance = plugin() if isinstance(plugin, type) else plugin
        configure = getattr(instance, "configure", None)
        if configure is not None:
            configure(config)
    except Exception as error:
        raise CannotLoad(f"{key}: {setting!r} cannot be created: {error}") from error
    return instance


def load_serializer(key: str, setting: Any, config: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return the serializer or deserializer of ``key``, created if it is a class. Raises CannotLoad.

    As in Kafka, its ``configure(config, is_key)`` is called once if it exists. A serializer of a producer finds the
    client of librdkafka in ``config`` as ``current.producer``.
    """
    if setting is None:
        return None
    is_key = key.startswith("key.")
    try:
        serializer = setting() if isinstance(setting, type) else setting
        configure = getattr(serializer, "configure", None)
        if configure is not None:
            configure(config, is_key)
    except Exception as error:
        raise CannotLoad(f"{key}: {setting!r} cannot be created: {error}") from error
    return _require_callable(key, serializer, "__call__")


def properties_of(key: str, setting: Any, group: str, builtin: Mapping[str, Any]) -> Collection[str]:
    """Return the property names in a plug-in's attribute ``properties``. Raises CannotLoad."""
    plugin = _find_plugin(key, setting, group, builtin) if isinstance(setting, str) else setting
    names: Collection[str] = getattr(plugin, "properties", ())
    return names


def load_chunk_serializer(setting: Any, config: Mapping[str, Any]) -> ChunkSerializer:
    """Load a function, or an object with ``serialize(topic, chunk)``. Raises CannotLoad."""
    builtin = {"DefaultSegmentSerializer": serialize_chunk, "default": serialize_chunk}
    plugin = load("segment.serializer", setting, CHUNK_SERIALIZERS, builtin, config)
    return _require_callable("segment.serializer", plugin, "serialize")


def load_chunk_deserializer(setting: Any, config: Mapping[str, Any]) -> ChunkDeserializer:
    """Load a function, or an object with ``deserialize(topic, value)``. Raises CannotLoad."""
    builtin = {"DefaultSegmentDeserializer": deserialize_chunk, "default": deserialize_chunk}
    plugin = load("segment.deserializer.class", setting, CHUNK_DESERIALIZERS, builtin, config)
    return _require_callable("segment.deserializer.class", plugin, "deserialize")


def load_id_factory(setting: Any, config: Mapping[str, Any]) -> IdFactory:
    """Load a function, or an object with ``new_id(topic, key, value)``. Raises CannotLoad."""
    builtin = {"DefaultUUIDFactory": random_id, "default": random_id}
    plugin = load("uuid.factory.class", setting, ID_FACTORIES, builtin, config)
    return _require_callable("uuid.factory.class", plugin, "new_id")


def load_auditor(setting: Any, config: Mapping[str, Any]) -> Auditor:
    """Load the auditor, configured and not started; None gives NoOpAuditor. Raises CannotLoad."""
    if setting is None:
        return NoOpAuditor()
    auditor = load("auditor.class", setting, AUDITORS, BUILTIN_AUDITORS, config)
    if not isinstance(auditor, Auditor):
        raise CannotLoad(f"auditor.class: {auditor!r} is not an Auditor")
    return auditor


def _require_callable(key: str, plugin: Any, method: str) -> Callable[..., Any]:
    function = getattr(plugin, method, plugin)
    if not callable(function):
        raise CannotLoad(f"{key}: {plugin!r} has no method {method}() and is not callable")
    checked: Callable[..., Any] = function
    return checked


def _find_plugin(key: str, name: str, group: str, builtin: Mapping[str, Any]) -> Any:
    short = name.rpartition(".")[2] if name.startswith(JAVA_PACKAGE) else name
    if short in builtin:
        return builtin[short]
    installed = {entry.name: entry for entry in entry_points(group=group)}
    if name in installed:
        return _load_or_fail(key, name, installed[name].load)
    module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    if not module:
        suggestions = get_close_matches(name, [*builtin, *installed], 1)
        hint = f"; did you mean {suggestions[0]!r}?" if suggestions else ""
        raise CannotLoad(f"{key}: unknown name {name!r}: neither built in nor an entry point of {group}{hint}")
    return _load_or_fail(key, name, lambda: _import_attribute(module, attribute))


def _import_attribute(module: str, path: str) -> Any:
    target = importlib.import_module(module)
    for name in path.split("."):
        target = getattr(target, name)
    return target


def _load_or_fail(key: str, name: str, load_plugin: Callable[[], Any]) -> Any:
    try:
        return load_plugin()
    except Exception as error:
        raise CannotLoad(f"{key}: {name!r} cannot be loaded: {error}") from error

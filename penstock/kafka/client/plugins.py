"""What users plug in: serializers, auditors, partitioners, named in a configuration.

A name is that of an entry point, of one of our own, or a path ``module:Name`` (or ``module.Name``); an object or a
class may be given itself. A class is made without arguments. What has a ``configure`` is given the configuration.
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
OWN_AUDITORS: Mapping[str, type[Auditor]] = {
    "NoOpAuditor": NoOpAuditor,
    "LoggingAuditor": LoggingAuditor,
    "LedgerAuditor": LedgerAuditor,
    "none": NoOpAuditor,
    "logging": LoggingAuditor,
    "ledger": LedgerAuditor,
}
JAVA_PACKAGE = "com.linkedin.kafka.clients."
"""Names of the Java library's own classes mean ours of the same name."""


class CannotLoad(PenstockError, ValueError):
    """What a key of the configuration names is not there, or is not what the key asks for."""


def load(key: str, given: Any, group: str, own: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """What ``key`` names, made and configured; ``own`` are ours by name. Raises CannotLoad, naming the key."""
    found = _find(key, given, group, own) if isinstance(given, str) else given
    try:
        made = found() if isinstance(found, type) else found
        configure = getattr(made, "configure", None)
        if configure is not None:
            configure(config)
    except Exception as error:
        raise CannotLoad(f"{key}: {given!r} cannot be made: {error}") from error
    return made


def properties_of(key: str, given: Any, group: str, own: Mapping[str, Any]) -> Collection[str]:
    """Names of the properties that a plug-in reads itself: its attribute ``properties``. Raises CannotLoad."""
    found = _find(key, given, group, own) if isinstance(given, str) else given
    names: Collection[str] = getattr(found, "properties", ())
    return names


def load_chunk_serializer(given: Any, config: Mapping[str, Any]) -> ChunkSerializer:
    """A function, or an object with ``serialize(topic, segment)``. Raises CannotLoad."""
    own = {"DefaultSegmentSerializer": serialize_chunk, "default": serialize_chunk}
    made = load("segment.serializer", given, CHUNK_SERIALIZERS, own, config)
    return _callable("segment.serializer", made, "serialize")


def load_chunk_deserializer(given: Any, config: Mapping[str, Any]) -> ChunkDeserializer:
    """A function, or an object with ``deserialize(topic, data)``. Raises CannotLoad."""
    own = {"DefaultSegmentDeserializer": deserialize_chunk, "default": deserialize_chunk}
    made = load("segment.deserializer.class", given, CHUNK_DESERIALIZERS, own, config)
    return _callable("segment.deserializer.class", made, "deserialize")


def load_id_factory(given: Any, config: Mapping[str, Any]) -> IdFactory:
    """A function, or an object with ``new_id(topic, key, value)``. Raises CannotLoad."""
    own = {"DefaultUUIDFactory": random_id, "default": random_id}
    made = load("uuid.factory.class", given, ID_FACTORIES, own, config)
    return _callable("uuid.factory.class", made, "new_id")


def load_auditor(given: Any, config: Mapping[str, Any]) -> Auditor:
    """What ``auditor.class`` names, configured and not yet started; None is NoOpAuditor. Raises CannotLoad."""
    if given is None:
        return NoOpAuditor()
    made = load("auditor.class", given, AUDITORS, OWN_AUDITORS, config)
    if not isinstance(made, Auditor):
        raise CannotLoad(f"auditor.class: {made!r} is not an Auditor")
    return made


def _callable(key: str, made: Any, method: str) -> Callable[..., Any]:
    found = getattr(made, method, made)
    if not callable(found):
        raise CannotLoad(f"{key}: {made!r} has no {method}() and cannot be called itself")
    result: Callable[..., Any] = found
    return result


def _find(key: str, name: str, group: str, own: Mapping[str, Any]) -> Any:
    short = name.rpartition(".")[2] if name.startswith(JAVA_PACKAGE) else name
    if short in own:
        return own[short]
    installed = {entry.name: entry for entry in entry_points(group=group)}
    if name in installed:
        return _loaded(key, name, installed[name].load)
    module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    if not module:
        near = get_close_matches(name, [*own, *installed], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise CannotLoad(f"{key}: there is no {name!r}: neither ours nor an entry point of {group}{hint}")
    return _loaded(key, name, lambda: _attribute(module, attribute))


def _attribute(module: str, path: str) -> Any:
    found = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _loaded(key: str, name: str, how: Callable[[], Any]) -> Any:
    try:
        return how()
    except Exception as error:
        raise CannotLoad(f"{key}: {name!r} cannot be loaded: {error}") from error

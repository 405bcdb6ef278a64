"""What of a new configuration can come into force while everything runs, and what waits for the next start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from penstock.config.keys.tree import Settings

AT_START = (
    "data_dir",
    "buffer",
    "log.grpc",
    "log.http",
    "log.flight",
    "log.kafka",
    "log.kafka_advertised",
    "log.max_bodies",
    "log.max_connections",
    "log.request_timeout",
    "transactions.producer_memory",
    "security.tls_cert",
    "security.tls_key",
    "security.client_ca",
    "security.open_health",
    "security.open_reflection",
    "security.hosts",
    "security.insecure",
    "pipeline",
    "console",
    "otel",
    "alarms",
)
"""Keys and groups that processes read once, when they start."""
TOKENS = "security.tokens"


def in_force(old: Settings, new: Settings) -> tuple[Settings, list[str]]:
    """``new`` as far as it can follow ``old`` without a restart, and the keys that have to wait for one."""
    held = [*AT_START]
    # The first token closes every door, the last one opens them: our own processes learn of that when they start.
    if bool(old.security.tokens) != bool(new.security.tokens):
        held.append(TOKENS)
    names: list[str] = []
    for path in held:
        names += differing(_at(old, path), _at(new, path), path)
        new = _with(new, path.split("."), _at(old, path))
    return new, names


def _at(group: Any, path: str) -> Any:
    for name in path.split("."):
        group = getattr(group, name)
    return group


def _with(group: Any, path: list[str], value: Any) -> Any:
    """``group`` with another value at ``path``."""
    name, *rest = path
    return group.model_copy(update={name: _with(getattr(group, name), rest, value) if rest else value})


def differing(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """The names of all keys that differ, but for listeners."""
    if isinstance(old, BaseModel) and isinstance(new, BaseModel):
        old, new = dict(old), dict(new)
    if name == "listener" or old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from differing(old.get(key), new.get(key), f"{name}.{key}" if name else key)
    else:
        yield name

"""Reload of a configuration: keys that take effect while everything runs, and keys that wait for a restart."""

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
"""Keys and groups that processes read only at their start."""
TOKENS = "security.tokens"


def in_force(old: Settings, new: Settings) -> tuple[Settings, list[str]]:
    """Return ``new`` with the old values of keys that need a restart, and the names of these keys."""
    fixed = [*AT_START]
    # The first token closes all servers, the last one opens them. Penstock's own processes read at their start whether
    # they need a token, so this transition waits for a restart.
    if bool(old.security.tokens) != bool(new.security.tokens):
        fixed.append(TOKENS)
    names: list[str] = []
    # Replacing the old value, instead of refusing the whole file, lets the other changes take effect now.
    for path in fixed:
        names += differing(_get_path(old, path), _get_path(new, path), path)
        new = _replace_path(new, path.split("."), _get_path(old, path))
    return new, names


def _get_path(group: Any, path: str) -> Any:
    for name in path.split("."):
        group = getattr(group, name)
    return group


def _replace_path(group: Any, path: list[str], value: Any) -> Any:
    """Return a copy of ``group`` with another value at ``path``."""
    name, *rest = path
    return group.model_copy(update={name: _replace_path(getattr(group, name), rest, value) if rest else value})


def differing(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Yield the names of all keys that differ, except listeners."""
    if isinstance(old, BaseModel) and isinstance(new, BaseModel):
        old, new = dict(old), dict(new)
    if name == "listener" or old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from differing(old.get(key), new.get(key), f"{name}.{key}" if name else key)
    else:
        yield name

"""Reload of a configuration: keys that take effect while everything runs, and keys that wait for a restart."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from pydantic import BaseModel

from penstock.config.keys.tree import Settings

_SERVERS = "the daemon's servers open their ports and limits once"
_CERTIFICATES = "the daemon's servers read the names of these files once; renewed files apply without a restart"
_ACCESS = "the daemon's servers decide once what is open without a token"
_SOURCE = "Spark's query is planned for one source, whose offsets its checkpoint has"
_TABLES = "the pipeline opens and locks the folder of its tables once"
_LIMITS = "Spark's query takes its trigger and limits at its start"
_RULES = "Spark's query takes the rules for rows, and its workers load functions, at their start"
AT_START = {
    "data_dir": "all files are in it: stop penstock, move it, and start again",
    "buffer": "a log buffer is replaced only while no process reads it",
    **dict.fromkeys(("log.grpc", "log.http", "log.flight", "log.kafka", "log.kafka_advertised"), _SERVERS),
    **dict.fromkeys(("log.max_bodies", "log.max_connections", "log.request_timeout"), _SERVERS),
    "transactions.producer_memory": "the memory of producers is laid out when a topic is opened",
    **dict.fromkeys(("security.tls_cert", "security.tls_key", "security.client_ca"), _CERTIFICATES),
    **dict.fromkeys(("security.open_health", "security.open_reflection", "security.hosts"), _ACCESS),
    "security.insecure": _ACCESS,
    **dict.fromkeys((f"pipeline.{key}" for key in ("source", "uri", "token", "topics")), _SOURCE),
    **dict.fromkeys((f"pipeline.{key}" for key in ("kafka", "kafka_group", "expiry_gap")), _SOURCE),
    **dict.fromkeys(("pipeline.tables", "pipeline.storage_options"), _TABLES),
    **dict.fromkeys((f"pipeline.{key}" for key in ("target_lag", "batch_rows", "batch_bytes")), _LIMITS),
    **dict.fromkeys((f"pipeline.{key}" for key in ("event_types", "schemas", "keep_payload", "proof")), _RULES),
    **dict.fromkeys(("pipeline.transform", "pipeline.redact"), _RULES),
    "pipeline.duplicate_window": "the keys of a longer window are read from the table at the start",
    "pipeline.iceberg": "the pipeline connects to the catalog once",
    "pipeline.fixes": "the console loads these functions once",
    "pipeline.spark": "Spark's session takes its properties at its start",
    "export": "the pipeline starts a thread for each export once",
    "console": "the console is a process of its own that reads them once",
    "sql": "the SQL server is a process of its own that reads them once",
    "otel": "the export connects once",
}
"""Keys and groups that processes read only at their start, and why."""
COMMANDS = {
    "pipeline.fixes": "penstock console",
    "pipeline": "penstock pipeline run",
    "export": "penstock pipeline run",
    "console": "penstock console",
    "sql": "penstock postgres",
}
"""Commands whose process reads keys and groups, if `penstock up` does not run it; `penstock serve` reads the others."""
APART = sorted({*COMMANDS.values()})
"""Commands that do not run if `penstock serve` was started without `penstock up`."""
SHARED = ("pipeline.tables", "pipeline.storage_options")
"""Keys of other commands that the log daemon reads at its start, too."""
FOLLOWED = ("retention", "merge_files_every", "typed")
"""Keys of ``pipeline`` that a running pipeline reads again from the log daemon (``upkeep.maintenance``)."""
TOKENS = "security.tokens"
_OPEN_OR_CLOSED = "the first entry closes all servers, and the last one opens them"


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


def restart_reason(key: str) -> str:
    """Return why a changed key takes effect at the next restart only."""
    reasons = {TOKENS: _OPEN_OR_CLOSED, **AT_START}
    matches = (reason for path, reason in reasons.items() if f"{key}.".startswith(f"{path}."))
    # The key may be in the answer of another version.
    return next(matches, "its process reads it once")


def restart_step(key: str, apart: Collection[str]) -> str:
    """Return the next step after which a changed key takes effect; ``apart``: commands that were started separately."""
    restart = "`penstock restart`"
    command = next((command for path, command in COMMANDS.items() if f"{key}.".startswith(f"{path}.")), "")
    if command not in apart:
        return restart
    is_shared = f"{key}.".startswith(tuple(f"{path}." for path in SHARED))
    return f"{f'{restart} and ' if is_shared else ''}the next start of `{command}`"

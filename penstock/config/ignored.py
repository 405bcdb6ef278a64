"""Keys that other programs' configurations have: accepted, without effect, and named at the start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

IGNORED = {
    "log.topic_defaults.index_after_bytes": "slogd's; every batch is indexed",
    "topic.*.index_after_bytes": "slogd's; every batch is indexed",
}
"""Each key (``*`` stands for any name), and why it has no effect."""


def drop_ignored(tree: dict[str, Any]) -> dict[str, str]:
    """Take the ignored keys out of what was given. Returns their names, each with the reason."""
    return {name: why for key, why in IGNORED.items() for name in list(_drop(tree, key.split("."), ""))}


def _drop(node: Any, path: list[str], prefix: str) -> Iterator[str]:
    first, *rest = path
    for name in list(node) if isinstance(node, dict) and first == "*" else [first]:
        if not isinstance(node, dict) or name not in node:
            continue
        if rest:
            yield from _drop(node[name], rest, f"{prefix}{name}.")
        else:
            del node[name]
            yield prefix + name

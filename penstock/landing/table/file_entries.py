"""Entries of a Delta log that list given files, and a commit that removes all of one file.

Delta identifies an entry by the path and the deletion vector of a file. An engine that removes a file without naming
its vector leaves the entry, so that a file may be listed several times. delta-rs cannot name a vector in a removal,
so this module writes the commit itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from penstock.files.errors import DamagedFile
from penstock.files.file_system import create_once
from penstock.files.json_values import parse_object
from penstock.landing.storage.object_path import TablePath
from penstock.landing.storage.parquet_files import parquet_file

LAST_CHECKPOINT = "_last_checkpoint"
_ENTRY_COLUMNS = ("path", "partitionValues", "size", "deletionVector")
_COMMIT_MODE = 0o666
"""Mode before the umask, the same as of the table's other files: other accounts may read the table."""


def parse_actions(text: str) -> list[dict[str, Any]]:
    """Parse the text of a commit. Raises ValueError."""
    return [parse_object(line) for line in text.splitlines() if line.strip()]


def read_entries(log: TablePath, version: int, names: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return Delta's ``add`` actions that list each of these files in a version. Raises DamagedFile if a commit is
    missing.
    """
    entries: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    decided = set[tuple[Any, ...]]()
    for number in range(version, -1, -1):
        if parts := _checkpoint_files(log, number):
            for action in (action for part in parts for action in _checkpoint_adds(part, entries)):
                if _identity(action) not in decided:
                    entries[unquote(action["path"])].append(action)
            return entries
        for kind, action in _actions_on(log, entries, number):
            if kind == "add" and _identity(action) not in decided:
                entries[unquote(action["path"])].append(action)
            decided.add(_identity(action))
    return entries


def _checkpoint_files(log: TablePath, version: int) -> list[TablePath]:
    """Return the files of the checkpoint of a version; none if it has no checkpoint."""
    stem = f"{version:020}.checkpoint"
    if (single := log / f"{stem}.parquet").exists():
        return [single]
    try:
        pointer = parse_object((log / LAST_CHECKPOINT).read_text())
        parts = int(pointer.get("parts") or 0) if pointer["version"] == version else 0
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []
    return [log / f"{stem}.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)]


def _actions_on(log: TablePath, names: Container[str], version: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the actions of a commit that add or remove these files, with their kind."""
    try:
        actions = parse_actions((log / f"{version:020}.json").read_text())
    except FileNotFoundError:
        raise DamagedFile(f"{log} has no commit {version}") from None
    for action in actions:
        for kind in ("add", "remove"):
            if kind in action and unquote(str(action[kind]["path"])) in names:
                yield kind, action[kind]


def _checkpoint_adds(path: TablePath, names: Container[str]) -> Iterator[dict[str, Any]]:
    with parquet_file(path) as file:
        for batch in file.iter_batches(columns=[f"add.{column}" for column in _ENTRY_COLUMNS]):
            adds: Any = batch.column("add")
            # Limit: only entries of these files become Python objects; a checkpoint lists all files of the table.
            paths = adds.flatten()[adds.type.get_field_index("path")].to_pylist()
            matches = [index for index, text in enumerate(paths) if text is not None and unquote(text) in names]
            for action in adds.take(matches).to_pylist() if matches else ():
                yield {**action, "partitionValues": dict(action["partitionValues"])}


def _identity(action: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return Delta's identity of an entry: its path in the log, undecoded, and its deletion vector."""
    vector = action.get("deletionVector") or {}
    return (action["path"], *(vector.get(key) for key in ("storageType", "pathOrInlineDv", "offset")))


def replacement(
    entries: Sequence[Mapping[str, Any]],
    added: Sequence[Mapping[str, Any]],
    now_ms: int,
    description: Mapping[str, Any],
    *,
    changed: bool = True,
) -> str:
    """Return the text of a commit that removes all entries of a file and adds files with its rows.

    ``added`` are Delta's ``add`` actions; ``description`` is stored in the commit's metadata; ``changed``: readers may
    have seen other rows.
    """
    info = {
        "timestamp": now_ms,
        "operation": "REORG",
        "operationParameters": {"applyPurge": "true"},
        "engineInfo": "Penstock",
        # Unique in each attempt: the content of the file then shows whose commit it is.
        "txnId": str(uuid4()),
        **description,
    }
    actions = [{"commitInfo": info}, *({"remove": _removal(entry, now_ms, changed)} for entry in entries)]
    return "".join(json.dumps(action) + "\n" for action in [*actions, *({"add": action} for action in added)])


def _removal(entry: Mapping[str, Any], now_ms: int, changed: bool) -> dict[str, Any]:
    vector = {key: field for key, field in (entry.get("deletionVector") or {}).items() if field is not None}
    removal = {key: entry[key] for key in ("path", "partitionValues", "size")}
    removal |= {"deletionTimestamp": now_ms, "dataChange": changed, "extendedFileMetadata": True}
    return removal | ({"deletionVector": vector} if vector else {})


def create_commit(path: Path, text: str) -> bool:
    """Create a commit durably; return False if another program has created this version."""
    create_once(path, text.encode(), _COMMIT_MODE)
    return path.read_text() == text

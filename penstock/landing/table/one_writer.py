"""One pipeline writes a table at a URL: the one whose id the table has in its properties.

The id is kept with what the pipeline knows of its batches, without which nobody could go on landing. Where two begin a
table at once, or one looks while the other takes it, Delta's commit decides, which a store takes from one alone.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import PenstockError
from penstock.files.checked_document import encode, read_document
from penstock.files.file_system import create_once
from penstock.landing.storage.object_path import ObjectPath

PROPERTY = "penstock.writer"


class AnotherWriter(PenstockError, RuntimeError):
    """The table belongs to another pipeline."""


def own_name(table: ObjectPath) -> str:
    """Who the pipeline is that may write here, from its state, where it is put the first time. Raises AnotherWriter."""
    if table.state is None:
        raise AnotherWriter(f"{table}: this is no pipeline, and may only read")
    path = _kept(table.state)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        create_once(path, encode({"name": f"{secrets.token_hex(16)} on {socket.gethostname()}"}))
    return str(read_document(path)["name"])


def check_writer(properties: Mapping[str, str], table: ObjectPath) -> None:
    """Raises AnotherWriter where the table's properties name another one."""
    found = properties.get(PROPERTY)
    if found is not None and found != own_name(table):
        host = found.partition(" on ")[2] or "another machine"
        raise AnotherWriter(
            f"{table} is written by another pipeline, begun on {host}: a table has one writer. Choose another URL, or, "
            f"if that one is gone, go on with its data_dir"
        )


def _kept(state: Path) -> Path:
    return state / "_checkpoints" / "landed.writer.json"

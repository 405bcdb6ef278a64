"""The one writer of a table at a URL: the pipeline whose id is in the table's properties.

The id is stored with the pipeline's state, without which no other pipeline could continue the landing. If two
pipelines create or claim a table at once, Delta's commit decides: the store accepts one of them.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping

from penstock.errors import PenstockError
from penstock.files.checked_document import encode, read_document
from penstock.files.file_system import create_once
from penstock.landing.storage.object_path import ObjectPath

PROPERTY = "penstock.writer"


class AnotherWriter(PenstockError, RuntimeError):
    """The table belongs to another pipeline."""


def own_name(table: ObjectPath) -> str:
    """Return this pipeline's id from its state, created at the first call. Raises AnotherWriter."""
    if table.state is None:
        raise AnotherWriter(f"{table}: this process has no pipeline state, and can only read")
    path = table.state / "_checkpoints" / "landed.writer.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Lock: two processes may start with one state; create_once gives both the same id.
    if not path.exists():
        create_once(path, encode({"name": f"{secrets.token_hex(16)} on {socket.gethostname()}"}))
    return str(read_document(path)["name"])


def check_writer(properties: Mapping[str, str], table: ObjectPath) -> None:
    """Raise AnotherWriter if the table's properties name another pipeline."""
    writer = properties.get(PROPERTY)
    if writer is not None and writer != own_name(table):
        host = writer.partition(" on ")[2] or "another machine"
        raise AnotherWriter(
            f"{table} is written by another pipeline, begun on {host}: a table has one writer. Choose another URL, or, "
            f"if that pipeline is gone, continue with its data_dir"
        )

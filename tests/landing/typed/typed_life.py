"""A table with a typed table, written as the pipeline's driver does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from crc32c import crc32c
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from penstock.files.checked_document import read_document
from penstock.landing.rows.json_events import EventRules
from penstock.landing.rows.table_rows import Rules
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable, strict_tables
from penstock.landing.typed.typed_tables import TypedTables
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job, MessageBatch, write_part
from tests.landing.writing.messages import AT, source

WINDOW = 600_000_000
CLICK = TypedTable("click", "click", (Column("path", "string", "path"), Column("ms", "int", "ms")))


def event(uuid: str, kind: str = "click", **data: Any) -> bytes:
    """Return a valid event with these fields of ``data``."""
    return json.dumps({"type": kind, "uuid": uuid, "timestamp": 1, "host": "web-1", "data": data}).encode()


@dataclass
class Life:
    """A run of the pipeline, from one start on."""

    layout: Layout
    tables: Sequence[TypedTable] = (CLICK,)

    def __post_init__(self) -> None:
        self.table = begin_table(self.layout)
        self.typed = TypedTables(self.layout, self.table, self.tables)
        self.typed.begin()
        self.commit = BatchCommit(self.table, self.layout.keys, WINDOW, before_commit=self.typed.commit)
        rules = Rules(EventRules(schemas=strict_tables(self.tables)))
        self.job = Job(self.table.folder, self.layout.keys, WINDOW, rules)

    def land(self, batch: int, *tasks: Sequence[MessageBatch], landed_at: int = AT) -> None:
        """Land a batch, written by one or more tasks."""
        job = replace(self.job, typed=self.typed.writer())
        self.commit.land(batch, lambda: [write_part(task, job, landed_at) for task in tasks])


class Killed(BaseException):
    """The end of the process."""


def killed(*_: Any, **__: Any) -> None:
    raise Killed


def kill_before_landed(life: Life, batch: int, tasks: Sequence[Any]) -> None:
    """Land a batch into the typed tables only."""
    life.commit._table.commit = killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        life.land(batch, tasks)


def read(folder: Path) -> list[dict[str, Any]]:
    """Return all rows, as another program reads them."""
    system = SubTreeFileSystem(str(folder), LocalFileSystem())
    rows: list[dict[str, Any]] = deltalake.DeltaTable(str(folder)).to_pyarrow_table(filesystem=system).to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"] or 0, row["offset"]))


def as_format(path: Path, version: int) -> bytes:
    """Give a document another format, as a later version would write it; return its content."""
    text = json.dumps({**read_document(path), "format": version}).encode()
    path.write_bytes(b"%08x" % crc32c(text) + text)
    return path.read_bytes()


def land_pairs(tables: Path, topics: Sequence[str]) -> Layout:
    """Land a batch of two events from each of these topics, ``a0`` and ``b0`` from the first one."""
    layout = Layout.for_tables(tables)
    life = Life(layout)
    for batch, topic in enumerate(topics):
        rows = [(2 * batch + index, event(f"{name}{batch}")) for index, name in enumerate("ab")]
        life.land(batch, [source(rows, topic=topic)])
    return layout


def uuids(folder: Path, kind: str = "click") -> list[str]:
    """Return the uuids of the events of a type."""
    return sorted(row["uuid"] for row in read(folder) if row["type"] == kind and row.get("kind", "event") == "event")

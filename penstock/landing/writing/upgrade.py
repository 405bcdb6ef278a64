"""A table of before version 0.2 carried over: each batch's rows into new files, under the batch's own number.

It can be killed and begun again at any moment. The old folder stays beside the new one until somebody removes it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.files.checked_document import read_document, write_document
from penstock.files.checked_lines import append_lines, read_lines
from penstock.files.file_system import OS
from penstock.landing.journal import Commit, read_journal
from penstock.landing.rows.engine import json_texts
from penstock.landing.rows.table_rows import carried_over
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.begun_table import DELTA, begin_table, is_old
from penstock.landing.table.delta_table import DELTA_LOG
from penstock.landing.table_paths import Layout, partition_value, place_of
from penstock.landing.writing.written_file import ROW_GROUP, FileWriter, WrittenFile

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
SPARK_LIST = "_spark_metadata"
MOVING = "moving.json"
"""Is there once all batches are carried over."""
Tell = Callable[[int, int], None]


def upgrade(layout: Layout, form: str = DELTA, tell: Tell = lambda done, of: None) -> int:
    """Carry an old table over; how many batches it had. One of today is left alone. Hold the landing's lock."""
    if layout.at is not None or not is_old(layout):  # tables at a URL began later
        return 0
    new = Layout(layout.tables / "_upgrade")
    if not (new.tables / MOVING).exists():
        _copy(layout, new, form, tell)
        write_document(new.tables / MOVING, {})
    _move(layout, new)
    return sum(1 for _ in read_journal(layout))


def _copy(old: Layout, new: Layout, form: str, tell: Tell) -> None:
    table, landed = begin_table(new, form), old.tables / "landed"
    commits = list(read_journal(old, moves=True))
    later = list(_later(old, commits))
    for number, (batch, names) in enumerate([*((one.batch, list(one.files)) for one in commits), *later], 1):
        if batch > table.newest():
            files = [written for name in names for written in _rewritten(landed, name, table.folder)]
            table.commit(batch, files)
        tell(number, len(commits) + len(later))
    new.journal.unlink(missing_ok=True)
    files_of = dict(table.files())
    append_lines(new.journal, [_renamed(line, files_of) for line in read_lines(old.journal, dict)])


def _renamed(line: Mapping[str, Any], files: Mapping[int, list[str]]) -> dict[str, Any]:
    return {**line, "files": files.get(int(line["batch"]), []) if line["files"] else []}


def _later(old: Layout, commits: list[Commit]) -> Iterator[tuple[int, list[str]]]:
    """Batches that the table has and the journal not yet: the pipeline was killed between the two."""
    last = max((one.batch for one in commits), default=-1)
    known = {name for one in commits for name in one.files}
    while (names := _listed(old.tables / "landed", last + 1)) is not None:
        yield last + 1, [name for name in names if name not in known]
        known.update(names)
        last += 1


def _listed(landed: Path, batch: int) -> list[str] | None:
    """The files that a batch added, or more; None where the table has no such batch."""
    for entry in (landed / SPARK_LIST / str(batch), landed / SPARK_LIST / f"{batch}.compact"):
        if entry.exists():
            told = [json.loads(line) for line in entry.read_text().splitlines()[1:] if line.strip()]
            return [_relative(str(one["path"])) for one in told]
    for commit in sorted((landed / DELTA_LOG).glob("*.json"), reverse=True):
        actions = [json.loads(line) for line in commit.read_text().splitlines() if line.strip()]
        if any(action.get("txn", {}).get("version") == batch for action in actions):
            return [unquote(action["add"]["path"]) for action in actions if "add" in action]
    return None


def _relative(path: str) -> str:
    return unquote(path)[unquote(path).index("/kind=") + 1 :]


def _rewritten(landed: Path, name: str, folder: TablePath) -> Iterator[WrittenFile]:
    kind, day = place_of(name)
    named = partition_value(name, "type")
    writer, at, texts = FileWriter(folder, kind, day), 0, None
    with pq.ParquetFile(landed / name) as file:
        if pa.types.is_struct(file.schema_arrow.field("data").type):  # a VARIANT, which Arrow sees as binaries
            texts = json_texts(landed / name, "data")
        for batch in file.iter_batches(ROW_GROUP):
            if texts is not None:
                place = batch.schema.get_field_index("data")
                batch = batch.set_column(place, "data", texts.slice(at, batch.num_rows))
            at += batch.num_rows
            writer.write(carried_over(batch, kind, None if named == NULL_FOLDER else named))
    yield writer.close()


def _move(old: Layout, new: Layout) -> None:
    """Put the new table in the old one's place; each step may be done already."""
    before, after = old.tables / "landed", new.tables / "landed"
    if after.exists():
        kept = old.tables / "_landed_before"
        if before.exists() and not kept.exists():
            os.replace(before, kept)
        os.replace(after, before)
    if new.journal.exists():
        os.replace(new.journal, old.journal)
    if new.listed.exists():
        os.replace(new.listed, old.listed)
    OS.sync_directory(old.tables)
    OS.sync_directory(old.journal.parent)
    shutil.rmtree(old.checkpoint / "state", ignore_errors=True)
    write_document(old.format, {name: value for name, value in read_document(new.format).items() if name != "format"})
    shutil.rmtree(new.tables)

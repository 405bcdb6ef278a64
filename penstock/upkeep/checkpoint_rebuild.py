"""Rebuild Spark's checkpoint of the landing after its files are lost or damaged.

Spark continues behind the newest plan (``offsets/N``) with a commit (``commits/N``), and needs the plan before it and
the query's id (``metadata``). All three follow from the table and the journal: the table says which batch is the
newest, the journal up to which offset each topic has landed.

Invariant: a rebuilt plan never ends behind an offset that has not landed. An end that is too early costs a second
reading only: the rows that follow the last one of a batch were duplicates, and are recognised as such again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.files.file_system import OS, make_folder, replace_durably
from penstock.files.json_values import parse_object
from penstock.landing.journal import PLAN_FORMAT, Planned, latest, read_plan
from penstock.landing.offset_runs import PARTITION_MARK
from penstock.landing.requests.backfill_requests import load_requests, passed_offsets
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import as_written, open_rows
from penstock.landing.table_paths import Layout

_LOGGER = logging.getLogger(__name__)


class CheckpointLost(PenstockError, RuntimeError):
    """The table has batches that the checkpoint knows nothing of; going on would drop rows in silence."""


def rebuild_checkpoint(layout: Layout) -> None:
    """Make the checkpoint agree with the table again, where its files are lost or damaged.

    Only while no query runs. Raises CheckpointLost where table and journal do not say enough, and OSError.
    """
    table, checkpoint = table_of(layout), layout.checkpoint
    newest = table.newest()
    missing = [batch for batch in (newest - 1, newest) if batch >= 0 and not _has_plan(checkpoint, batch)]
    if missing:
        _LOGGER.warning("%s is lost or damaged: it is made again from table and journal", checkpoint)
        plan = _plan_of(layout, table, newest) if newest in missing else read_plan(checkpoint, newest)
        # Plans behind the table's newest batch are planned again: they may begin at another offset now.
        for entry in _entries_behind(checkpoint / "offsets", newest) if newest in missing else ():
            entry.unlink()
        for batch in missing:
            _write(checkpoint / "offsets" / str(batch), [PLAN_FORMAT, *_lines_of(plan)])
        # Order: the commit last. Crash: in between, the next start finds the plan and Spark does the batch again, which
        # the table passes over.
        _write(checkpoint / "commits" / str(newest), [PLAN_FORMAT, '{"nextBatchWatermarkMs":0}'])
    has_plans = newest >= 0 or any(_entries_behind(checkpoint / "offsets", -1))
    if has_plans and not _has_id(checkpoint / "metadata"):
        _LOGGER.warning("%s is lost or damaged: the query gets a new id", checkpoint / "metadata")
        _write(checkpoint / "metadata", [json.dumps({"id": str(uuid.uuid4())})])


def _plan_of(layout: Layout, table: DeltaTable, newest: int) -> Planned:
    """Return a plan for the table's newest batch, from the journal and the batches that it does not have yet."""
    rolled, commits = latest(layout, moves=True)
    ends, last, landed_at = dict(rolled.end), rolled.batch, rolled.landed_at
    for commit in commits:
        ends.update(commit.end)
        last, landed_at = commit.batch, commit.landed_at
    if (older := _newest_plan(layout.checkpoint, last, newest)) is not None:
        last, plan = older
        ends.update(plan.end)
        landed_at = plan.landed_at
    if last < 0 and not layout.journal.exists():
        raise CheckpointLost(_advice(layout, newest, f"{layout.journal} is missing too"))
    if last > newest:
        raise CheckpointLost(_advice(layout, newest, f"{layout.journal} goes up to batch {last}"))
    if any(PARTITION_MARK in name for name in ends):  # Kafka's since a promotion: the log's ends stay in the journal
        ends = {name: end for name, end in ends.items() if PARTITION_MARK in name}
    if last < newest:
        if any(passed_offsets(ends, request) < request.rows for request in load_requests(layout.refills).values()):
            raise CheckpointLost(_advice(layout, newest, f"{layout.journal} lacks it, and a backfill is not done"))
        landed = _ends_in_files(layout, table, last, newest)
        ends.update({topic: max(end, ends.get(topic, 0)) for topic, (end, _) in landed.items()})
        landed_at = max([landed_at, *(at for _, at in landed.values())])
    return Planned(ends, landed_at, 0)


def _newest_plan(checkpoint: Path, after: int, before: int) -> tuple[int, Planned] | None:
    """Return number and content of the newest intact plan between two batches, if there is one."""
    for batch in range(before - 1, after, -1):
        with contextlib.suppress(FileNotFoundError, DamagedFile):
            return batch, read_plan(checkpoint, batch)
    return None


def _ends_in_files(layout: Layout, table: DeltaTable, after: int, newest: int) -> dict[str, tuple[int, int]]:
    """Return by topic the offset behind the last row of the batches after ``after``, and their time of landing (ms)."""
    ends: dict[str, tuple[int, int]] = {}
    for name in as_written(name for batch, names in table.files(after + 1) if batch <= newest for name in names):
        try:
            with open_rows(table.folder, name) as rows:
                columns = rows.read(["topic", "partition", "offset", "landed_at"])
        except FileNotFoundError:
            raise CheckpointLost(_advice(layout, newest, f"{name} is missing too")) from None
        if columns["partition"].null_count < len(columns):
            # The offset of a large message in Kafka is not the last one that it has.
            raise CheckpointLost(_advice(layout, newest, f"{layout.journal} lacks it"))
        columns = columns.set_column(0, "topic", columns["topic"].cast(pa.string()))
        last = columns.group_by("topic").aggregate([("offset", "max"), ("landed_at", "max")])
        for row in last.to_pylist():
            end, at = ends.get(row["topic"], (0, 0))
            millis = round(row["landed_at_max"].timestamp() * 1000)
            ends[row["topic"]] = max(end, row["offset_max"] + 1), max(at, millis)
    return ends


def _advice(layout: Layout, newest: int, reason: str) -> str:
    return (
        f"{layout.landed} has batches up to {newest}, its checkpoint {layout.checkpoint} is lost, and {reason}: "
        "put the checkpoint back, or choose another folder of tables"
    )


def _has_plan(checkpoint: Path, batch: int) -> bool:
    try:
        read_plan(checkpoint, batch)
    except (FileNotFoundError, DamagedFile):
        return False
    return True


def _has_id(metadata: Path) -> bool:
    try:
        return isinstance(parse_object(metadata.read_bytes()).get("id"), str)
    except (FileNotFoundError, ValueError):
        return False


def _entries_behind(folder: Path, batch: int) -> list[Path]:
    """Return the entries of one of Spark's lists with a larger number than ``batch``."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.name.isdecimal() and int(path.name) > batch]


def _lines_of(plan: Planned) -> list[str]:
    metadata = {"batchWatermarkMs": plan.watermark, "batchTimestampMs": plan.landed_at, "conf": {}}
    return [json.dumps(metadata, separators=(",", ":")), json.dumps(_nested(plan.end), separators=(",", ":"))]


def _nested(ends: Mapping[str, int]) -> dict[str, Any]:
    """Return ends as the sources write them: by topic, in Kafka by topic and partition."""
    nested: dict[str, Any] = {}
    for name, end in sorted(ends.items()):
        topic, mark, partition = name.rpartition(PARTITION_MARK)
        if mark:
            nested.setdefault(topic, {})[partition] = end
        else:
            nested[name] = end
    return nested


def _write(path: Path, lines: list[str]) -> None:
    make_folder(path.parent)
    # Hadoop's file system compares a file with its checksum file, if there is one.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    replace_durably(OS, path, "\n".join(lines).encode())

"""Rebuild Spark's checkpoint of the landing after its files are lost or damaged.

Spark continues behind the newest plan with a commit, and needs the plan before it and the query's id
(``penstock.landing.spark_checkpoint``). All three follow from the table and the journal: the table says which batch is
the newest, the journal up to which offset each topic has landed.

Invariant: a rebuilt plan never ends behind an offset that has not landed. An end that is too early costs a second
reading only: the rows that follow the last one of a batch were duplicates, and are recognised as such again.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.landing.journal import latest
from penstock.landing.requests.backfill_requests import load_requests, passed_offsets
from penstock.landing.spark_checkpoint import (
    Planned,
    ensure_query_id,
    find_plan,
    has_query_id_file,
    newest_plan,
    planned_batches,
    read_plan,
    remove_plan,
    write_commit,
    write_plan,
)
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import as_written, open_rows
from penstock.landing.table_paths import Layout
from penstock.qualified_names import is_partition

_LOGGER = logging.getLogger(__name__)


class CheckpointLost(PenstockError, RuntimeError):
    """The table has batches that the checkpoint knows nothing of; going on would drop rows in silence."""


def rebuild_checkpoint(layout: Layout) -> None:
    """Make the checkpoint agree with the table again, where its files are lost or damaged.

    Only while no query runs. Raises CheckpointLost where table and journal do not say enough, and OSError.
    """
    table, checkpoint = table_of(layout), layout.checkpoint
    newest = table.newest()
    missing = [batch for batch in (newest - 1, newest) if batch >= 0 and find_plan(checkpoint, batch) is None]
    if missing:
        _LOGGER.warning("%s is lost or damaged: it is rebuilt from table and journal", checkpoint)
        plan = _plan_of(layout, table, newest) if newest in missing else read_plan(checkpoint, newest)
        # Plans behind the table's newest batch are planned again: they may begin at another offset now.
        for batch in planned_batches(checkpoint) if newest in missing else ():
            if batch > newest:
                remove_plan(checkpoint, batch)
        for batch in missing:
            write_plan(checkpoint, batch, plan)
        # Order: the commit last. Crash: in between, the next start finds the plan and Spark does the batch again, which
        # the table passes over.
        write_commit(checkpoint, newest)
    # Crash: a power cut may leave an empty file before the first plan, too, with which Spark would not start.
    if newest_plan(checkpoint) >= 0 or has_query_id_file(checkpoint):
        ensure_query_id(checkpoint)


def _plan_of(layout: Layout, table: DeltaTable, newest: int) -> Planned:
    """Return a plan for the table's newest batch, from the journal and the batches that it does not have yet."""
    rolled, commits = latest(layout, moves=True)
    ends, last, landed_at = dict(rolled.end), rolled.batch, rolled.landed_at
    for commit in commits:
        ends.update(commit.end)
        last, landed_at = commit.batch, commit.landed_at
    for batch in range(newest - 1, last, -1):
        if (plan := find_plan(layout.checkpoint, batch)) is not None:
            ends.update(plan.end)
            last, landed_at = batch, plan.batch_time_ms
            break
    if last < 0 and not layout.journal.exists():
        raise CheckpointLost(_advice(layout, newest, f"{layout.journal} is missing too"))
    if last > newest:
        raise CheckpointLost(_advice(layout, newest, f"{layout.journal} goes up to batch {last}"))
    if any(is_partition(name) for name in ends):  # Kafka's since a promotion: the log's ends stay in the journal
        ends = {name: end for name, end in ends.items() if is_partition(name)}
    if last < newest:
        if any(passed_offsets(ends, request) < request.rows for request in load_requests(layout.backfills).values()):
            raise CheckpointLost(_advice(layout, newest, f"{layout.journal} lacks it, and a backfill is not done"))
        landed = _ends_in_files(layout, table, last, newest)
        ends.update({topic: max(end, ends.get(topic, 0)) for topic, (end, _) in landed.items()})
        landed_at = max([landed_at, *(at for _, at in landed.values())])
    return Planned(ends, landed_at, 0)


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

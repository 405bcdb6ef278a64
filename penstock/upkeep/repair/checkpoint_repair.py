"""Repair the table and Spark's checkpoint before the query starts, after any end of the previous one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.errors import PenstockError
from penstock.landing.journal import landed_ends, latest
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.spark_checkpoint import (
    find_plan,
    newest_commit,
    newest_plan,
    planned_batches,
    read_plan,
    remove_commit,
    remove_plan,
    remove_torn_commits,
    remove_torn_plans,
    write_plan,
)
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.table_paths import Layout
from penstock.log.topic_patterns import is_selected
from penstock.qualified_names import is_partition, topic_of
from penstock.upkeep.repair.checkpoint_rebuild import CheckpointLost, rebuild_checkpoint

OWN_NAME = re.compile(r"[0-9a-f]{32}\.parquet")
"""Names that ``FileWriter`` gives."""
FILE_TIME_SLACK_MS = 10_000
"""Limit for the difference between a file's time and its batch's, from clocks and the resolution of file systems."""


class SourceDiffers(PenstockError, ValueError):
    """The tables are landed from another source."""


def check_batches(layout: Layout) -> None:
    """Raise CheckpointLost if the table is ahead: Spark would skip a batch that the table already lists."""
    planned, listed = newest_plan(layout.checkpoint), table_of(layout).newest()
    if listed > planned:
        raise CheckpointLost(
            f"{layout.landed} has batches up to {listed}, its checkpoint {layout.checkpoint} up to {planned}: "
            "put the checkpoint back, or choose another folder of tables"
        )


def check_source(layout: Layout, kafka: bool) -> None:
    """Raise SourceDiffers if the checkpoint's position belongs to another kind of source."""
    newest = newest_plan(layout.checkpoint)
    position = read_plan(layout.checkpoint, newest).end if newest >= 0 else {}
    if kafka and any(not is_partition(name) for name in position):
        raise SourceDiffers("these tables are landed from the log: `penstock promote TOPIC --to kafka` moves them over")
    if not kafka and any(is_partition(name) for name in position):
        raise SourceDiffers('these tables are landed from Kafka: they need pipeline.source = "kafka"')


def repair_checkpoint(layout: Layout) -> list[str]:
    """Repair the table and remove torn newest entries of Spark's lists; return the paths of removed entries.

    Crash: a power cut may leave empty entries. Spark repeats their batch, and the table has its files once, because the
    table's own log says whether they are committed.
    """
    table = table_of(layout)
    if has_landed_table(layout):
        table.begin()
    removed = [*remove_torn_commits(layout.checkpoint), *repeat_missing_batch(layout, table)]
    removed += remove_torn_plans(layout.checkpoint, newest_commit(layout.checkpoint))
    rebuild_checkpoint(layout)
    return removed


def repeat_missing_batch(layout: Layout, table: DeltaTable) -> list[str]:
    """Make Spark repeat the newest batch if the table lacks it; return the paths of removed entries.

    A batch is committed during the tasks of the next one (``penstock.landing.writing.background_commit``), so Spark
    may be ahead of the table by one. Later plans are removed too and planned again.
    """
    missing_batch = table.newest() + 1
    removed = []
    if newest_plan(layout.checkpoint) == missing_batch + 1:
        removed.append(remove_plan(layout.checkpoint, missing_batch + 1))
    if newest_commit(layout.checkpoint) == missing_batch:
        removed.append(remove_commit(layout.checkpoint, missing_batch))
    return removed


def repair_positions(layout: Layout, table: DeltaTable, patterns: Sequence[str]) -> dict[str, int]:
    """Let the next plan continue at the landed offsets of Kafka's partitions; return these offsets.

    Spark forgets partitions that it does not see for a moment, or whose topic the configuration does not name for a
    while, and would begin them at 0. Only while no query runs.
    """
    newest, checkpoint = table.newest(), layout.checkpoint
    landed = landed_ends(layout)
    for batch in planned_batches(checkpoint):
        if batch <= newest and (plan := find_plan(checkpoint, batch)) is not None:
            landed |= plan.end
    landed = {name: end for name, end in landed.items() if is_partition(name)}
    if not landed or (position := find_plan(checkpoint, newest)) is None:
        return landed
    names = [name for name in landed if is_selected(topic_of(name), patterns)]
    missing = {name: landed[name] for name in names if name not in position.end}
    unfinished = find_plan(checkpoint, newest + 1)
    if unfinished is not None and (missing or any(end < landed.get(n, 0) for n, end in unfinished.end.items())):
        drop_unfinished_plan(layout, table)
    if missing:
        write_plan(checkpoint, newest, replace(position, end=position.end | missing))
    return landed


def drop_unfinished_plan(layout: Layout, table: DeltaTable) -> None:
    """Remove the plan of the batch that the table lacks, so that it is planned again. Only while no query runs."""
    missing_batch = table.newest() + 1
    if newest_plan(layout.checkpoint) == missing_batch:
        remove_plan(layout.checkpoint, missing_batch)


def sweep(layout: Layout) -> int:
    """Remove files that the table's log never named, left by a killed pipeline; return their number.

    Requires that no query runs, and that the journal is up to date.
    """
    landed = layout.landed
    if not isinstance(landed, Path):
        # An object store has no folder with a modification time: the vacuum removes its old files.
        return 0
    # Lock: a running merge has files that are not in the table yet.
    with hold_upkeep_lock(layout):
        orphans = _orphans(layout, landed)
        for name in orphans:
            (landed / name).unlink()
    return len(orphans)


def _orphans(layout: Layout, landed: Path) -> set[str]:
    rolled, commits = latest(layout)
    since = max((commits[-1] if commits else rolled).landed_at - FILE_TIME_SLACK_MS, 0)
    orphans = set(_written_since(landed, since))
    for commit in commits:
        orphans.difference_update(commit.files)
    if not orphans:
        return orphans
    table = table_of(layout)
    # Invariant: a file that the table's log ever named stays until the vacuum, because readers of earlier versions and
    # of Iceberg's snapshots have it open.
    named = table.names_since(since)
    return set[str]() if named is None else orphans.difference(named, table.active())


def _written_since(table: Path, since: int) -> Iterator[str]:
    """Yield the table's own files written since a time (milliseconds), relative to the table."""
    for folder, _, names in os.walk(table):
        # Fast path: a folder that was not modified has no new file, so that old days are not listed.
        if not os.path.relpath(folder, table).startswith("kind=") or os.stat(folder).st_mtime * 1000 < since:
            continue
        for name in names:
            path = Path(folder, name)
            # Invariant: only files of our own. Another program may be about to commit the ones that it has written.
            if OWN_NAME.fullmatch(name) and path.stat().st_mtime * 1000 >= since:
                yield os.path.relpath(path, table)

"""Bringing table and checkpoint in order before the query starts, after whatever ended the one before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import PenstockError
from penstock.files.file_system import OS
from penstock.files.json_values import parse_json
from penstock.landing.journal import PARTITION_MARK, committed_batches, latest, read_plan
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.table_paths import Layout

SLACK = 10_000
"""Milliseconds: how much a file's time may be before its batch's, by clocks and file systems."""


class CheckpointLost(PenstockError, RuntimeError):
    """The table has batches that the checkpoint knows nothing of; going on would drop rows in silence."""


class SourceDiffers(PenstockError, ValueError):
    """The tables are landed from another source."""


def check_batches(layout: Layout) -> None:
    """Raises CheckpointLost: Spark skips a batch that the table's list has already, whatever is in it."""
    planned, listed = _newest(layout.checkpoint / "offsets"), table_of(layout).newest()
    if listed > planned:
        raise CheckpointLost(
            f"{layout.landed} has batches up to {listed}, its checkpoint {layout.checkpoint} up to {planned}: "
            "put the checkpoint back, or choose another folder of tables"
        )


def check_source(layout: Layout, kafka: bool) -> None:
    """Raises SourceDiffers where the checkpoint's position is not one in the source that is to be read."""
    newest = _newest(layout.checkpoint / "offsets")
    position = read_plan(layout.checkpoint, newest).end if newest >= 0 else {}
    if kafka and any(PARTITION_MARK not in name for name in position):
        raise SourceDiffers("these tables are landed from the log: `penstock promote TOPIC --to kafka` moves them over")
    if not kafka and any(PARTITION_MARK in name for name in position):
        raise SourceDiffers('these tables are landed from Kafka: they need pipeline.source = "kafka"')


def mend(layout: Layout) -> list[str]:
    """Put the table in order, and remove the newest entries of Spark's lists where they are torn (a power cut may leave
    empty files).

    Spark then does that batch again; its files are in the table once all the same, because the table's own list
    says whether it has them. Returns the names of what was removed.
    """
    table = table_of(layout)
    if has_landed_table(layout):
        table.begin()
    commits, offsets = layout.checkpoint / "commits", layout.checkpoint / "offsets"
    removed = [*_drop_torn(commits, -1), *take_back(layout, table)]
    done = max(committed_batches(layout.checkpoint), default=-1)
    removed += _drop_torn(offsets, done)
    return removed


def take_back(layout: Layout, table: DeltaTable) -> list[str]:
    """Have Spark do the newest batch again where the table does not have it: it is committed while the next one's tasks
    run (``penstock.landing.writing.background_commit``). What was planned after it is planned anew. The names of
    what was removed.
    """
    lacking = table.newest() + 1
    ahead = (layout.checkpoint / "offsets", lacking + 1), (layout.checkpoint / "commits", lacking)
    return [_removed(folder / str(batch)) for folder, batch in ahead if _newest(folder) == batch]


def _drop_torn(folder: Path, keep: int) -> list[str]:
    """Remove torn entries from the newest on, down to batch ``keep``, which stays."""
    removed = []
    while (newest := _newest(folder)) > keep:
        entry = folder / str(newest)
        if _is_whole(entry):
            break
        removed.append(_removed(entry))
    return removed


def _removed(entry: Path) -> str:
    """Remove an entry of one of Spark's lists, durably; its name."""
    entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    entry.unlink()
    OS.sync_directory(entry.parent)
    return str(entry)


def _is_whole(entry: Path) -> bool:
    version, *lines = entry.read_bytes().splitlines() or [b""]
    try:
        for line in lines:
            if line != b"-":
                parse_json(line)
    except ValueError:
        return False
    return version.startswith(b"v")


def _newest(folder: Path) -> int:
    """The largest number among the entries of one of Spark's lists; -1 for none."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def sweep(layout: Layout) -> int:
    """Remove files of the table that no batch committed, left behind by a killed pipeline; how many.

    Only while no query runs, and after the journal was brought up to date.
    """
    landed = layout.landed
    if not isinstance(landed, Path):
        return 0  # they go with those of old: a store has no folder that says when it was written to
    with hold_upkeep_lock(layout):  # what is being merged is not in the table yet
        orphans = _orphans(layout, landed)
        for name in orphans:
            (landed / name).unlink()
    return len(orphans)


def _orphans(layout: Layout, landed: Path) -> set[str]:
    rolled, commits = latest(layout)
    since = max((commits[-1] if commits else rolled).landed_at - SLACK, 0)
    orphans = set(_written_since(landed, since))
    for commit in commits:
        orphans.difference_update(commit.files)
    orphans.difference_update(table_of(layout).active() if orphans else ())
    return orphans


def _written_since(table: Path, since: int) -> Iterator[str]:
    """The table's files written since a time (milliseconds), relative to the table."""
    for folder, _, names in os.walk(table):
        if not os.path.relpath(folder, table).startswith("kind=") or os.stat(folder).st_mtime * 1000 < since:
            continue
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".parquet" and path.stat().st_mtime * 1000 >= since:
                yield os.path.relpath(path, table)

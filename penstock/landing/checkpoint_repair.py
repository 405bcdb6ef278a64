"""Bringing table and checkpoint in order before the query starts, after whatever ended the one before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import PenstockError
from penstock.files.json_values import parse_json
from penstock.landing.journal import PARTITION_MARK, committed_batches, read_journal, read_plan
from penstock.landing.table_files import DeltaLog, table_list
from penstock.landing.table_paths import Layout

SLACK = 10_000
"""Milliseconds: how much a file's time may be before its batch's, by clocks and file systems."""


class CheckpointLost(PenstockError, RuntimeError):
    """The table has batches that the checkpoint knows nothing of; going on would drop rows in silence."""


class SourceDiffers(PenstockError, ValueError):
    """The tables are landed from another source."""


def check_batches(layout: Layout) -> None:
    """Raises CheckpointLost: Spark skips a batch that the table's list has already, whatever is in it."""
    planned, listed = _newest(layout.checkpoint / "offsets"), table_list(layout).newest()
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


def last_landing(checkpoint: Path) -> int:
    """The time of landing of the newest batch in the checkpoint, in milliseconds; 0 where there is none."""
    newest = _newest(checkpoint / "offsets")
    return read_plan(checkpoint, newest).landed_at if newest >= 0 else 0


def mend(layout: Layout) -> list[str]:
    """Remove the newest entries of Spark's lists where they are torn (a power cut may leave empty files).

    Spark then does that batch again; its files are in the table once all the same, because the table's own list
    says whether it has them. Returns the names of what was removed.
    """
    commits, offsets = layout.checkpoint / "commits", layout.checkpoint / "offsets"
    removed = _drop_torn(commits, -1)
    done = max(committed_batches(layout.checkpoint), default=-1)
    if entries := table_list(layout).entries():
        removed += _drop_torn(entries, done)
    removed += _drop_torn(offsets, done)
    return removed


def _drop_torn(folder: Path, keep: int) -> list[str]:
    """Remove torn entries from the newest on, down to batch ``keep``, which stays."""
    removed = []
    while (newest := _newest(folder)) > keep:
        entry = next(path for path in (folder / str(newest), folder / f"{newest}.compact") if path.exists())
        if _is_whole(entry):
            break
        (folder / f".{entry.name}.crc").unlink(missing_ok=True)
        entry.unlink()
        removed.append(str(entry))
    return removed


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
        names = [name.removesuffix(".compact") for name in os.listdir(folder)]
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def sweep(layout: Layout) -> int:
    """Remove files of the table that no batch committed, left behind by a killed pipeline; how many.

    Spark's readers do not see them, because they follow the table's list; other tools read the folders and would.
    Only while no query runs, and after the journal was brought up to date. Delta has its VACUUM for that.
    """
    if isinstance(table_list(layout), DeltaLog):
        return 0
    last = max(read_journal(layout), key=lambda commit: commit.batch, default=None)
    since = max(last.landed_at - SLACK, 0) if last else 0
    orphans = set(_written_since(layout.landed, since))
    for commit in read_journal(layout) if orphans else ():
        orphans.difference_update(commit.files)
    for _, files in table_list(layout).files(last.batch + 1 if last else 0):
        orphans.difference_update(files)
    for name in orphans:
        path = layout.landed / name
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.unlink()
    return len(orphans)


def _written_since(table: Path, since: int) -> Iterator[str]:
    """The table's files written since a time (milliseconds), relative to the table."""
    for folder, _, names in os.walk(table):
        if not os.path.relpath(folder, table).startswith("kind=") or os.stat(folder).st_mtime * 1000 < since:
            continue
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".parquet" and path.stat().st_mtime * 1000 >= since:
                yield os.path.relpath(path, table)

"""Files of batches that never were committed, left behind by a killed pipeline.

Spark's readers do not see them, because they follow the sink log; other tools read the folders and would.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.spark.commits import committed_files, read_journal
from penstock.spark.layout import Layout

SLACK = 10_000
"""Milliseconds: how much a file's time may be before its batch's, by clocks and file systems."""


def sweep(layout: Layout) -> int:
    """Remove files of the table that no batch committed; how many. Only while no query runs, and after the
    journal was brought up to date."""
    last, since = -1, 0
    recent: list[tuple[int, tuple[str, ...]]] = []
    for commit in read_journal(layout):
        last, since = commit.batch, commit.landed_at - SLACK
        recent = [(at, files) for at, files in recent if at >= since - SLACK] + [(commit.landed_at, commit.files)]
    known = {name for _, files in recent for name in files}
    for _, files in committed_files(layout.tables, last + 1):
        known.update(files)
    removed = 0
    for name in _written_since(layout.landed, max(since, 0)):
        if name not in known:
            (layout.landed / name).unlink(missing_ok=True)
            removed += not name.endswith(".crc")
    return removed


def _written_since(table: Path, since: int) -> Iterator[str]:
    """The files written since a time (milliseconds), relative to the table; checksum files go by their file."""
    for folder, _, names in os.walk(table):
        if not os.path.relpath(folder, table).startswith("kind=") or os.stat(folder).st_mtime * 1000 < since:
            continue
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".parquet" and path.stat().st_mtime * 1000 >= since:
                yield os.path.relpath(path, table)

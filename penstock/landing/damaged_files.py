"""The list of damaged files of the tables, which the scrub finds (``penstock.upkeep.repair.scrub``)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.files.checked_lines import append_lines, read_lines
from penstock.landing.table_paths import Layout

REPORTED, REMOVING, REPAIRED = "reported", "removing", "repaired"
"""States of a damaged file: it stays in the table; it leaves the table; it was replaced, or its rows asked
for again.
"""
Ranges = Mapping[str, tuple[int, int]]
"""Offsets [begin, end) by topic."""


def damaged_files(layout: Layout) -> dict[str, str]:
    """Return the state of each damaged file that was found so far, by its path."""
    return dict(read_lines(layout.damaged, lambda line: (str(line["file"]), str(line["state"]))))


def files_being_removed(layout: Layout) -> dict[str, Ranges]:
    """Return the files whose rows were not asked for yet, with the offsets that they may have had."""
    removing: dict[str, Ranges] = {}
    for line in read_lines(layout.damaged, dict):
        removing.pop(str(line["file"]), None)
        if line["state"] == REMOVING:
            removing[str(line["file"])] = {str(t): (int(b), int(e)) for t, (b, e) in line["ranges"].items()}
    return removing


def note_damaged_file(layout: Layout, name: str, state: str, ranges: Ranges | None = None) -> None:
    """Write down the state of a file, once. Raises OSError."""
    if damaged_files(layout).get(name) != state:
        append_lines(layout.damaged, [{"file": name, "state": state, "ranges": dict(ranges or {})}])

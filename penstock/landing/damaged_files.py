"""The list of damaged files of the tables, which the scrub finds (``penstock.upkeep.repair.scrub``)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.files.checked_lines import append_lines, read_lines
from penstock.landing.table_paths import Layout

REPORTED, REMOVING, REPAIRED = "reported", "removing", "repaired"
"""States of a damaged file: it stays in the table; it leaves the table; it was replaced, or its rows asked
for again.
"""
UNREADABLE_IN_JSON = b'"?"]'
"""The end of a noted complaint of ``penstock.proof.commit_notes`` about files that cannot be read."""
PUT_BACK = 'put the file back from a backup; see "Damaged files" in the documentation of tables, and pipeline.log'
"""The next step for a file that cannot be read."""
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


def may_have_unreadable_files(layout: Layout) -> bool:
    """Report whether a file that cannot be read was found, and was not replaced when it was found."""
    # Fast path: the balance asks each time; few tables have ever had such a file.
    return (layout.damaged.exists() and REPORTED in damaged_files(layout).values()) or (
        layout.foreign.exists() and UNREADABLE_IN_JSON in layout.foreign.read_bytes()
    )


def note_damaged_file(layout: Layout, name: str, state: str, ranges: Ranges | None = None) -> None:
    """Write down the state of a file, once. Raises OSError."""
    if damaged_files(layout).get(name) != state:
        append_lines(layout.damaged, [{"file": name, "state": state, "ranges": dict(ranges or {})}])

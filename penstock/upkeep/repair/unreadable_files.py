"""The files of the tables that cannot be read, as the balance, the status, ``doctor`` and the console list them.

A module of its own: it imports delta-rs only if there is such a file, so that commands start fast.
"""

from __future__ import annotations

from penstock.landing.damaged_files import REPORTED, damaged_files, may_have_unreadable_files
from penstock.landing.table_paths import Layout


def unreadable_files(layout: Layout) -> list[str]:
    """Return a line for each unreadable file that stays in a table, and for each commit with such files.

    Only what the pipeline has found: ``find_damaged_files`` reads all files. Raises DamagedFile, OSError.
    """
    if not may_have_unreadable_files(layout):
        return []
    from penstock.landing.table.landed_table import table_of
    from penstock.landing.typed.typed_delta import existing_typed_tables
    from penstock.proof.commit_notes import UNREADABLE, noted_complaints
    from penstock.upkeep.repair.scrub import find_damage

    reported = {name for name, state in damaged_files(layout).items() if state == REPORTED}
    listed = (
        (table.folder, file) for table in (table_of(layout), *existing_typed_tables(layout)) for file in table.active()
    )
    lines = [
        f"{folder}/{file} is damaged, and its rows cannot be read: {reason}"
        for folder, file in listed
        # It is read again: somebody may have put it back.
        if f"{folder}/{file}" in reported and (reason := find_damage(folder, file).partition("\n")[0])
    ]
    log = table_of(layout)
    # Files of a commit that the log no longer has are never read again: the complaint stays with the rebuilt balance.
    return lines + [
        fault.text
        for fault in noted_complaints(layout)
        if fault.file == UNREADABLE and log.foreign_commit(fault.version) is not None
    ]

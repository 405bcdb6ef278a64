"""A slow check of all files of the tables, and the repair of damaged ones from the log.

Every page of a file is read and compared with its checksum. A damaged file is reported and counted. If the log still
has all of its rows, the file leaves the table and its rows land again, as a request of ``backfill_planner``. A file
with rows of Kafka is replaced by one with the same rows (``restore``), and a file of a typed table by its rows of
``landed``.

Crash: the name of a file is written down before it leaves the table, so that the next start asks for its rows if this
one did not.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.landing.damaged_files import (
    REMOVING,
    REPAIRED,
    REPORTED,
    damaged_files,
    files_being_removed,
    note_damaged_file,
)
from penstock.landing.journal import BACKFILL_MARK, landed_ends
from penstock.landing.landing_lock import hold_upkeep_lock
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.table.table_file import TableFile, is_about_content, open_rows
from penstock.landing.table_paths import Layout
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_delta import existing_typed_tables
from penstock.qualified_names import is_partition, topic_of
from penstock.upkeep.backfill_planner import (
    BackfillPlan,
    BackfillPlanner,
    CannotBackfill,
    hold_backfill_lock,
    request_backfill,
)
from penstock.upkeep.repair.reread_rows import RowSources
from penstock.upkeep.repair.restore import HAS_VECTOR, restore_rows
from penstock.upkeep.typed.fill import CannotRestore, restore_file

_LOGGER = logging.getLogger(__name__)


def find_damage(folder: TablePath, file: TableFile) -> str:
    """Return the fault of a file as text; empty if all of it can be read."""
    try:
        with open_rows(folder, file) as rows:
            for _ in rows.batches():
                pass
    except FileNotFoundError:
        return "the file is missing"
    except (pa.ArrowInvalid, OSError) as error:
        if not is_about_content(error):
            raise
        return str(error)
    return ""


def find_damaged_files(layout: Layout) -> list[tuple[str, str]]:
    """Return the damaged files of all tables, each with the reason."""
    if not has_landed_table(layout):
        return []
    damaged = []
    for table in (table_of(layout), *existing_typed_tables(layout)):
        damaged += [
            (f"{table.folder}/{file}", reason) for file in table.active() if (reason := find_damage(table.folder, file))
        ]
    return damaged


class _Bounds(NamedTuple):
    """The number of rows of a file, and their first and last topic and offset."""

    rows: int
    topics: tuple[Any, Any]
    offsets: tuple[Any, Any]


class Scrub:
    """The check of one set of tables.

    ``topics``: the folder of the log that is landed; ``sources``: Kafka, if its topics are landed. Without both damaged
    files of ``landed`` are only reported.
    """

    def __init__(self, layout: Layout, topics: Path | None = None, sources: RowSources | None = None) -> None:
        self._layout, self._topics, self._sources = layout, topics, sources
        self._queue: deque[tuple[DeltaTable, TableFile]] = deque()
        self._has_resumed = False

    def check_next(self, typed: Sequence[TypedTable] = ()) -> None:
        """Check one file. ``typed``: the typed tables that the landing writes. Raises OSError and the errors of a
        store.
        """
        if not self._has_resumed:
            self._resume()
            self._has_resumed = True
        if not self._queue:
            tables = (table_of(self._layout), *existing_typed_tables(self._layout))
            files = [(table, file) for table in tables for file in table.active()]
            # In any order: a pipeline that is often restarted also comes to the last files.
            random.shuffle(files)
            self._queue.extend(files)
        if self._queue:
            self._check(*self._queue.pop(), typed)

    def _check(self, table: DeltaTable, file: TableFile, typed: Sequence[TypedTable]) -> None:
        reason = find_damage(table.folder, file)
        # A file that was merged or deleted since it was listed is no longer in the table, or has a vector now.
        current = next((listed for listed in table.active() if listed == file), None) if reason else None
        name = f"{table.folder}/{file}"
        if current is None:
            if not reason and damaged_files(self._layout).get(name) == REPORTED:
                _LOGGER.info("%s can be read again", name)
                note_damaged_file(self._layout, name, REPAIRED)
            return
        if current.live is not None:
            # Only delta-rs writes the removal of a file with a vector, and it would copy the damage. Rows that are
            # asked for again would come back although they are deleted.
            _LOGGER.error("%s is damaged and stays in the table, because %s: %s", name, HAS_VECTOR, reason)
            note_damaged_file(self._layout, name, REPORTED)
            return
        if table.folder != self._layout.landed:
            self._restore_typed(table, file, reason, typed)
            return
        plans = self._plan(file)
        if not plans:
            self._restore(name, file, reason, typed)
            return
        with hold_backfill_lock(self._layout), hold_upkeep_lock(self._layout):
            ranges = {plan.topic: (plan.begin, plan.end) for plan in plans}
            note_damaged_file(self._layout, name, REMOVING, ranges)
            table.replace([file], [])
            self._request_rows(name, plans)
        rows = sum(len(plan.lost) for plan in plans)
        _LOGGER.error(
            "%s is damaged and has left the table; its %d rows land again from the log: %s", name, rows, reason
        )

    def _restore(self, name: str, file: TableFile, reason: str, typed: Sequence[TypedTable]) -> None:
        """Replace a damaged file by one with the same rows, or report why that is impossible."""
        try:
            if self._sources is None:
                raise CannotRestore(self._explain_missing_rows(file))
            rows = restore_rows(self._layout, file, self._sources, typed)
        except (PenstockError, pa.ArrowInvalid, OSError) as error:
            if not is_about_content(error):  # such as a full disk: it is tried again
                raise
            _LOGGER.error("%s is damaged and stays in the table, because %s: %s", name, error, reason)
            note_damaged_file(self._layout, name, REPORTED)
            return
        note_damaged_file(self._layout, name, REPAIRED)
        _LOGGER.error("%s is damaged and has been replaced by its %d rows, read again: %s", name, rows, reason)

    def _restore_typed(self, table: DeltaTable, file: TableFile, reason: str, typed: Sequence[TypedTable]) -> None:
        """Replace a damaged file of a typed table by its rows of ``landed``, or report why that is impossible."""
        name, configured = f"{table.folder}/{file}", {self._layout.typed(each.name): each for each in typed}
        try:
            if table.folder not in configured:
                raise CannotRestore("the table is no longer configured")
            rows = restore_file(self._layout, configured[table.folder], file)
        except (CannotRestore, pa.ArrowInvalid, OSError) as error:
            if not is_about_content(error):  # such as a full disk: it is tried again
                raise
            _LOGGER.error("%s is damaged and stays in the table: %s (not replaced: %s)", name, reason, error)
            note_damaged_file(self._layout, name, REPORTED)
            return
        note_damaged_file(self._layout, name, REPAIRED)
        _LOGGER.error("%s is damaged and has been replaced by its %d rows of landed: %s", name, rows, reason)

    def _explain_missing_rows(self, file: TableFile) -> str:
        """Return why the rows of a damaged file of ``landed`` cannot land again."""
        bounds = self._bounds(file)
        if bounds is None:
            return "its footer is damaged, and the table's log does not have its offsets"
        (first, last), (begin, end) = bounds.topics, bounds.offsets
        topics = [topic for topic in landed_ends(self._layout) if BACKFILL_MARK not in topic]
        if any(is_partition(topic) and first <= topic_of(topic) <= last for topic in topics):
            names = first if first == last else f"{first} to {last}"
            return f"its rows are from Kafka, which is not read again (topic {names}, offsets {begin} to {end})"
        if self._topics is None:
            return "the log is not on this machine"
        return "the log lacks some of its rows"

    def _bounds(self, file: TableFile) -> _Bounds | None:
        """Return the bounds that a file's footer states, else the table's log; None if both do not."""
        try:
            with open_rows(self._layout.landed, file) as rows:
                topics, offsets = rows.bounds("topic"), rows.bounds("offset")
                return None if topics is None or offsets is None else _Bounds(rows.rows, topics, offsets)
        except (pa.ArrowInvalid, OSError):
            statistics = table_of(self._layout).statistics(file)
            topics, offsets = (statistics.get(name, (None, None))[:2] for name in ("topic", "offset"))
            if not file.written_rows or None in (*topics, *offsets):
                return None
            return _Bounds(file.written_rows if file.live is None else int(file.live.sum()), topics, offsets)

    def _plan(self, file: TableFile) -> list[BackfillPlan]:
        """Return plans to land the rows of a file again; empty if the log does not have all of them."""
        bounds = self._bounds(file) if self._topics is not None else None
        if bounds is None:
            return []
        topics, offsets = bounds.topics, bounds.offsets
        names = [topic for topic in landed_ends(self._layout) if topics[0] <= topic <= topics[1]]
        plans = self._survey(dict.fromkeys(names, (offsets[0], offsets[1] + 1)), file)
        return plans if sum(len(plan.lost) for plan in plans) >= bounds.rows else []

    def _survey(self, ranges: Mapping[str, tuple[int, int]], without: str) -> list[BackfillPlan]:
        assert self._topics is not None
        planner = BackfillPlanner(self._topics, self._layout, (), running=True, without=without)
        plans = []
        for topic, (begin, end) in ranges.items():
            if is_partition(topic) or BACKFILL_MARK in topic:
                continue
            try:
                plan = planner.survey(topic, begin, end)
            except CannotBackfill:  # the topic was deleted
                continue
            plan.ahead = np.zeros(0, np.int64)  # left to the pipeline's own turn
            if len(plan.lost):
                plans.append(plan)
        return plans

    def _request_rows(self, name: str, plans: list[BackfillPlan]) -> None:
        for plan in plans:
            request_backfill(self._layout, plan)
        note_damaged_file(self._layout, name, REPAIRED)

    def _resume(self) -> None:
        """Ask for the rows of files that had left the table when the process was killed."""
        removing = files_being_removed(self._layout)
        active = {f"{self._layout.landed}/{file}" for file in table_of(self._layout).active()} if removing else set()
        for name, ranges in removing.items():
            if name in active:
                continue
            if not ranges:  # it was replaced by a file with its rows
                note_damaged_file(self._layout, name, REPAIRED)
            elif self._topics is not None:
                with hold_backfill_lock(self._layout):
                    self._request_rows(name, self._survey(ranges, without=""))

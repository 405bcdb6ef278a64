"""The table as of one micro-batch, and up to where that had landed each topic: there the log goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.backfill.requests import Request, requests, without
from penstock.landing.deletion.deletions import Record
from penstock.landing.duplicates.hash_run import HashRun
from penstock.landing.journal import read_journal, read_plan
from penstock.landing.offset_runs import OffsetRange
from penstock.landing.table.begun_table import is_begun, table_of
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import all_typed
from penstock.landing.writing.batch_commit import TableMovedOn, runs_through

ATTEMPTS = 50
PAUSE = 0.02
"""Seconds. A commit takes about as long."""


class TableTooBusy(PenstockError, RuntimeError):
    """Batch after batch was committed while the table was looked at."""


class StateElsewhere(PenstockError, RuntimeError):
    """The tables are at a URL, and what their pipeline keeps is on another machine."""


@dataclass(frozen=True, slots=True)
class Cut:
    """``files``: those of the table through ``batch`` (-1 for none). ``ended``: by topic, and by request to land out of
    turn, how far they had landed. ``keys``: those of the events that landed. ``typed``: the files of typed tables.
    """

    batch: int = -1
    files: list[TableFile] = field(default_factory=list)
    ended: Mapping[str, int] = field(default_factory=dict)
    keys: list[HashRun] = field(default_factory=list)
    requests: Mapping[str, Request] = field(default_factory=dict)
    typed: Mapping[str, list[TableFile]] = field(default_factory=dict)

    def beyond(self, topic: str, start: int, end: int) -> list[OffsetRange]:
        """What of the offsets [start, end) of a topic has not landed, by its own turn or by a request."""
        here = max(start, self.ended.get(topic, 0))
        mine = [
            one for one in self.requests.values() if one.topic == topic and not one.again and one.name in self.ended
        ]
        done = [run for one in mine for run in one.part(0, self.ended[one.name])]
        owed = [run for one in mine for run in one.part(self.ended[one.name], one.rows)]
        left = [(max(low, start), min(high, here)) for low, high in owed]
        return [*sorted((low, high) for low, high in left if low < high), *without(here, end, done)]


def take_cut(layout: Layout, window: int) -> Cut:
    """The table as it is now. ``window``: that of duplicates, in microseconds.

    Raises TableTooBusy, UnknownFormat, DamagedFile, StateElsewhere.
    """
    if not is_begun(layout):
        if layout.at is not None and table_of(layout).newest() >= 0:
            raise StateElsewhere(f"{layout.landed}: its pipeline knows how far it has landed: ask where that runs")
        return Cut()
    damaged: DamagedFile | None = None
    for _ in range(ATTEMPTS):
        try:
            return _cut(layout, window)
        except (TableMovedOn, FileNotFoundError):
            damaged = None
        except DamagedFile as error:  # or Delta's log was just being tidied
            damaged = error
        time.sleep(PAUSE)
    raise damaged or TableTooBusy(f"{layout.landed}: batch after batch was committed meanwhile; ask again")


def _cut(layout: Layout, window: int) -> Cut:
    table = table_of(layout)
    batch = table.newest()
    files = table.active()
    typed = {one.folder.name: one.through(batch) for one in all_typed(layout)}
    keys = runs_through(table, layout.keys, window, batch, lambda: Record(layout).keys())
    found = Cut(batch, files, _ended(layout, batch), keys, requests(layout.refills), typed)
    if table.newest() != batch:
        raise TableMovedOn
    return found


def _ended(layout: Layout, batch: int) -> dict[str, int]:
    """From Spark's plan of the batch, or the journal where Spark has forgotten it."""
    ended: dict[str, int] = {}
    if batch >= 0:
        try:
            return read_plan(layout.checkpoint, batch).end
        except FileNotFoundError:
            for commit in read_journal(layout, moves=True):
                if commit.batch <= batch:
                    ended.update(commit.end)
    return ended

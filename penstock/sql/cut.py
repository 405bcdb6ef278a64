"""A consistent cut: the table as of one batch, and the offset at which the log continues for each topic.

Invariant: files, offsets and keys belong to the same batch. The cut is repeated if a batch is committed in between.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.files.errors import DamagedFile
from penstock.landing.duplicates.hash_run import HashRun
from penstock.landing.journal import read_journal
from penstock.landing.offset_runs import OffsetRange
from penstock.landing.requests.backfill_requests import Request, load_requests, subtract_runs
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.spark_checkpoint import read_plan
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import existing_typed_tables
from penstock.landing.writing.batch_commit import TableMovedOn, landed_runs

MAX_ATTEMPTS = 50
RETRY_PAUSE_S = 0.02
"""Pause between attempts; a commit takes about as long."""


class TableTooBusy(PenstockError, RuntimeError):
    """A table in which a batch was committed during every attempt to read it."""


class StateElsewhere(PenstockError, RuntimeError):
    """Tables at a URL whose pipeline keeps its state on another machine."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The table through ``batch`` (-1: no batch): its ``files``, and the offsets at which each topic and backfill
    request ends in ``ends``.

    ``keys`` belong to landed events; ``typed`` the files of typed tables by view.
    """

    batch: int = -1
    files: list[TableFile] = field(default_factory=list)
    ends: Mapping[str, int] = field(default_factory=dict)
    keys: list[HashRun] = field(default_factory=list)
    requests: Mapping[str, Request] = field(default_factory=dict)
    typed: Mapping[str, list[TableFile]] = field(default_factory=dict)

    def beyond(self, topic: str, start: int, end: int) -> list[OffsetRange]:
        """Return the offsets in [start, end) of a topic that have not landed, in order or by a request."""
        ordered_end = max(start, self.ends.get(topic, 0))
        topic_requests = [
            request
            for request in self.requests.values()
            if request.topic == topic and not request.lost and request.name in self.ends
        ]
        landed_runs = [run for request in topic_requests for run in request.part(0, self.ends[request.name])]
        open_runs = [run for request in topic_requests for run in request.part(self.ends[request.name], request.rows)]
        clipped_runs = [(max(low, start), min(high, ordered_end)) for low, high in open_runs]
        return [
            *sorted((low, high) for low, high in clipped_runs if low < high),
            *subtract_runs(ordered_end, end, landed_runs),
        ]


def take_cut(layout: Layout, window: int) -> Cut:
    """Return the current cut of a table. ``window`` is the duplicate window in microseconds.

    Raises TableTooBusy, UnknownFormat, DamagedFile, StateElsewhere.
    """
    if not has_landed_table(layout):
        if layout.store is not None and table_of(layout).newest() >= 0:
            raise StateElsewhere(f"{layout.landed}: its pipeline's state is on another machine: run the query there")
        return Cut()
    damaged: DamagedFile | None = None
    for _ in range(MAX_ATTEMPTS):
        try:
            return _try_cut(layout, window)
        # A commit or a compaction in between: its files may be gone, so the whole cut is taken again.
        except (TableMovedOn, FileNotFoundError):
            damaged = None
        except DamagedFile as error:  # or a clean-up removed files of Delta's log in between
            damaged = error
        time.sleep(RETRY_PAUSE_S)
    raise damaged or TableTooBusy(f"{layout.landed}: batches were committed during every attempt; run the query again")


def _try_cut(layout: Layout, window: int) -> Cut:
    table = table_of(layout)
    batch = table.newest()
    files = table.active()
    typed = {typed_table.folder.name: typed_table.through(batch) for typed_table in existing_typed_tables(layout)}
    keys = landed_runs(table, layout.keys, window, batch, lambda: DeletionRecord(layout).keys())
    cut = Cut(batch, files, _end_offsets(layout, batch), keys, load_requests(layout.backfills), typed)
    # Invariant: a batch that was committed in between may have moved rows from the log to the table.
    if table.newest() != batch:
        raise TableMovedOn
    return cut


def _end_offsets(layout: Layout, batch: int) -> dict[str, int]:
    """Return the end offsets of a batch from Spark's plan, or from the journal if Spark removed the plan."""
    ends: dict[str, int] = {}
    if batch >= 0:
        try:
            return read_plan(layout.checkpoint, batch).end
        except FileNotFoundError:
            for commit in read_journal(layout, moves=True):
                if commit.batch <= batch:
                    ends.update(commit.end)
    return ends

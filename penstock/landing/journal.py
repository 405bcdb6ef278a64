"""Journal of the landing query's commits: for each micro-batch its ranges of offsets and its files.

Filled from Spark's checkpoint and the table's log, because both forget: Spark its offsets and commits after a hundred
batches, Delta its commits after a week. The journal has the recent batches; older ones are rolled up (``history``).
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.files.checked_lines import append_lines, read_lines
from penstock.landing.history import Sum, read_sum, stretches
from penstock.landing.row_sums import RowSums
from penstock.landing.rows.type_schemas import is_of_contract
from penstock.landing.spark_checkpoint import committed_batches, read_plan
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout

if TYPE_CHECKING:
    from penstock.landing.table.delta_table import DeltaTable

BACKFILL_MARK = "@"
"""Separates a topic and the number of a request (``penstock.landing.requests.backfill_requests``)."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed micro-batch: offsets [begin, end) by topic, and its files relative to the table's folder.

    ``landed_at`` is the time at which Spark planned it, ``watermark`` Spark's watermark of the batch (both in
    milliseconds). A rolled-up commit covers the batches ``first`` to ``batch``; it names no files, and ``landed_at`` is
    of the last.
    ``version`` of the table, ``written_at`` (column ``landed_at`` of its rows, in microseconds), ``sums`` and
    ``violations`` (of typed tables' contracts, by rule) come from the table's commit; -1, 0 and empty if it does not
    say them.
    """

    batch: int
    begin: Mapping[str, int]
    end: Mapping[str, int]
    landed_at: int
    watermark: int
    files: tuple[str, ...]
    first: int | None = None
    version: int = -1
    written_at: int = 0
    sums: RowSums = field(default_factory=RowSums)
    violations: Counter[str] = field(default_factory=Counter)

    def ranges(self) -> dict[str, tuple[int, int]]:
        """Return the offsets [begin, end) of each topic that had any."""
        return {topic: span for topic, span in self.spans().items() if BACKFILL_MARK not in topic}

    def backfills(self) -> dict[str, tuple[int, int]]:
        """Return the landed positions [begin, end) of each request to land offsets out of turn (``events@3``)."""
        return {name: span for name, span in self.spans().items() if BACKFILL_MARK in name}

    def spans(self) -> dict[str, tuple[int, int]]:
        """Return the ranges of topics and requests that had any."""
        spans = {topic: (self.begin.get(topic, 0), end) for topic, end in self.end.items()}
        return {topic: (begin, end) for topic, (begin, end) in spans.items() if end > begin}

    def document(self) -> dict[str, Any]:
        """Return the commit as JSON-ready values, with the topics that had rows."""
        return {
            "batch": self.batch,
            "ranges": {topic: list(span) for topic, span in self.spans().items()},
            "landed_at": self.landed_at,
            "watermark": self.watermark,
            "files": list(self.files),
            **({} if self.first is None else {"first": self.first}),
            **({} if self.version < 0 else {"version": self.version, "written_at": self.written_at}),
            **({"sums": self.sums.document()} if self.sums else {}),
            **({"violations": dict(self.violations)} if self.violations else {}),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Commit:
        """Parse a document. Raises KeyError, TypeError or ValueError."""
        ranges = document["ranges"]
        return cls(
            batch=int(document["batch"]),
            begin={topic: int(span[0]) for topic, span in ranges.items()},
            end={topic: int(span[1]) for topic, span in ranges.items()},
            landed_at=int(document["landed_at"]),
            watermark=int(document["watermark"]),
            files=tuple(str(name) for name in document["files"]),
            first=None if document.get("first") is None else int(document["first"]),
            version=int(document.get("version", -1)),
            written_at=int(document.get("written_at", 0)),
            sums=RowSums.from_document(document.get("sums", ())),
            violations=_violations(document),
        )


class CommitInProgress:
    """The micro-batch that is being committed; None for none.

    Readers may see its rows already, and a crash may still revert it, so the journal does not enter it.
    """

    def __init__(self) -> None:
        self.batch: int | None = None

    def holds_back(self, batch: int) -> bool:
        """Report whether a batch may still be reverted."""
        # Lock: the committing thread sets it at any time, so it is read once.
        first = self.batch
        return first is not None and batch >= first


class Journal:
    """The journal of commits; one owner, the process that lands.

    ``update`` adds what Spark committed since, except for a commit in progress. ``lines`` is the number of lines. A
    damaged end is cut off and written again, because Spark still has these batches. Offsets of lines that are damaged
    further up stay unaccounted in the balance, which names them.
    """

    def __init__(self, layout: Layout, under_way: CommitInProgress | None = None) -> None:
        self._layout, self._under_way = layout, under_way or CommitInProgress()
        self._table: DeltaTable | None = None
        layout.journal.parent.mkdir(parents=True, exist_ok=True)
        rolled, commits = latest(layout, repair=True, moves=True)
        self.last, self.lines = rolled.batch, len(commits)
        self._end: dict[str, int] = dict(rolled.end)
        for commit in commits:
            self.last = commit.batch
            self._end.update(commit.end)

    def update(self) -> list[Commit]:
        """Append new commits, synced; return them in order. Raises OSError, and then nothing was appended."""
        layout = self._layout
        new = [batch for batch in committed_batches(layout.checkpoint) if batch > self.last]
        if not new:
            return []
        self._table = self._table or table_of(layout)
        # Order: commits run behind Spark (BackgroundCommit), so Spark may be one batch ahead of the table.
        newest = self._table.newest()
        new = [batch for batch in new if batch <= newest and not self._under_way.holds_back(batch)]
        if not new:
            return []
        committed = {batch.batch: batch for batch in self._table.batches(self.last + 1)}
        added: list[Commit] = []
        last, end = self.last, self._end
        for batch in new:
            plan = read_plan(layout.checkpoint, batch)
            # If Spark has forgotten batches in between, their files and offsets are added to this one.
            parts = [committed[b] for b in range(last + 1, batch + 1) if b in committed]
            names = tuple(name for part in parts for name in part.files)
            version = max((part.version for part in parts), default=-1)
            written_at = max((int(part.description.get("landed_at", 0)) for part in parts), default=0)
            commit = Commit(
                batch, end, plan.end, plan.batch_time_ms, plan.watermark, names, version=version, written_at=written_at
            )
            for part in parts:
                commit.sums.absorb(RowSums.from_document(part.description.get("sums", ())))
                commit.violations.update(_violations(part.description))
            added.append(commit)
            last, end = batch, {**end, **plan.end}
        append_lines(layout.journal, [commit.document() for commit in added])
        self.last, self._end, self.lines = last, end, self.lines + len(added)
        return added


def latest(layout: Layout, *, repair: bool = False, moves: bool = False) -> tuple[Sum, list[Commit]]:
    """Return the sum of rolled-up batches, and the commits since.

    With ``moves`` also commits at which another source began. ``repair`` is for the journal's owner.
    """
    # Order: the journal before the sum. A roll-up removes lines after the sum has them, so no batch is missed.
    entries = list(read_lines(layout.journal, _entry, repair=repair))
    rolled = read_sum(layout)
    return rolled, [commit for commit, is_move in entries if commit.batch > rolled.batch and (moves or not is_move)]


def read_journal(layout: Layout, *, moves: bool = False) -> Iterator[Commit]:
    """Yield all commits, older ones rolled up; with ``moves`` also commits at which another source began."""
    entries = list(read_lines(layout.journal, _entry))
    last = -1
    for stretch in stretches(layout):
        last = stretch.batch
        with contextlib.suppress(KeyError, TypeError, ValueError):
            yield Commit.from_document(stretch.commit)
    yield from (commit for commit, is_move in entries if commit.batch > last and (moves or not is_move))


def violations_by_rule(layout: Layout) -> Counter[str]:
    """Return how many landed events violated each rule of contracts, so that a value is in ``rest``."""
    rolled, commits = latest(layout)
    violations = Counter({name: count for name, count in rolled.totals.items() if is_of_contract(name)})
    for commit in commits:
        violations.update(commit.violations)
    return violations


def lands_hashed_rows(layout: Layout) -> bool:
    """Report whether the newest batch with rows has the hashes of whole rows in its sums."""
    commits = (commit for commit in reversed(latest(layout)[1]) if commit.sums)
    return any(commit.sums.are_hashed for commit in itertools.islice(commits, 1))


def landed_ends(layout: Layout) -> dict[str, int]:
    """Return the end of the committed offsets of each topic and request."""
    rolled, commits = latest(layout)
    ends = dict(rolled.end)
    for commit in commits:
        ends.update(commit.end)
    return ends


def _violations(document: Mapping[str, Any]) -> Counter[str]:
    return Counter({str(rule): int(count) for rule, count in document.get("violations", {}).items()})


def _entry(document: Mapping[str, Any]) -> tuple[Commit, bool]:
    return Commit.from_document(document), bool(document.get("moved"))

"""Rows that leave the table: what the ledger must know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, SourceBucket
from penstock.landing.journal import BACKFILL_MARK, Commit, read_journal
from penstock.landing.offset_runs import NO_RUNS, OffsetRange, Runs, as_runs, intersection, is_inside, joined, runs_of
from penstock.landing.requests.backfill_requests import load_requests
from penstock.landing.requests.deletions import Deletion, TopicDeletions
from penstock.landing.row_sums import RowSums, with_partitions
from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import Mask, TableFile, open_rows
from penstock.landing.table.table_reader import TableReader
from penstock.landing.table_paths import Layout
from penstock.proof.evidence import fate, is_of_topic, of_topic, read_rows, row_sums, tally
from penstock.proof.uuid_sums import of_events


@dataclass(slots=True)
class DeletedRows:
    """The rows of one deletion: by topic their fates and sums of uuids (by source and bucket), and their offsets.

    Invariant: a row has one fate. Rows that an earlier deletion counted (``counted``, offsets by topic), and which a
    RESTORE brought back, leave their offsets only. ``repeated`` is their number, and that of further copies of a row,
    and of another program's rows without topic or offset, or with an offset outside of ``landed`` (by topic; None for
    unknown), which have no fate.

    ``copied``: offsets by topic of which the table keeps another row; they have no fate here either.

    ``filled``: offsets by topic that had no row until the commit of another program inserted one.

    ``unreadable``: why the rows are unknown; then there are none.

    Grows file by file. Owned by one thread.
    """

    deletion: Deletion
    counted: Mapping[str, Runs] = field(default_factory=dict)
    landed: Mapping[str, Runs] | None = None
    copied: Mapping[str, Runs] = field(default_factory=dict)
    fates: dict[str, dict[SourceBucket, Counts]] = field(default_factory=dict)
    uuids: dict[str, dict[SourceBucket, Counts]] = field(default_factory=dict)
    runs: dict[str, list[Runs]] = field(default_factory=dict)
    sums: RowSums = field(default_factory=RowSums)
    repeated: int = 0
    unreadable: str = ""
    filled: Mapping[str, Runs] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Add rows (``evidence.ROWS``) of one file."""
        placed = with_offsets(rows)
        if self.landed is not None:
            placed = placed.filter(pa.array(rows_within(placed, self.landed)))
        if self.copied:
            placed = placed.filter(pa.array(~rows_within(placed, self.copied)))
        self.repeated += rows.num_rows - placed.num_rows
        rows = placed
        for topic in map(str, pc.unique(rows["topic"].cast(pa.string())).to_pylist()):
            topic_rows = self._add_offsets(topic, of_topic(rows, topic))
            self.sums.absorb(row_sums(topic_rows))
            for origin, fates in tally(topic_rows).items():
                counts = Counts({fate(kind, reason): n for (kind, reason), n in fates.items()})
                self.fates.setdefault(topic, {}).setdefault(origin, Counts()).absorb(counts)
            for origin, sums in of_events(topic_rows).items():
                self.uuids.setdefault(topic, {}).setdefault(origin, Counts()).absorb(sums)

    def _add_offsets(self, topic: str, rows: pa.Table) -> pa.Table:
        """Add the offsets of rows of one topic; return the rows that are not counted yet."""
        offsets = rows["offset"].to_numpy()
        distinct, first_indices = np.unique(offsets, return_index=True)
        runs, parts = runs_of(distinct), self.runs.setdefault(topic, [])
        is_first = np.zeros(len(offsets), bool)
        is_first[first_indices] = True
        for earlier in (self.counted.get(topic, NO_RUNS), *parts):
            is_first &= ~is_inside(offsets, intersection(runs, earlier))
        parts.append(runs)
        # Limit: each part has at least twice the runs of the next, so parts are few however many files there are.
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            last = parts.pop()
            parts[-1] = as_runs(np.concatenate([parts[-1], last]))
        self.repeated += int((~is_first).sum())
        return rows if is_first.all() else rows.filter(pa.array(is_first))

    @property
    def rows(self) -> int:
        """The number of rows that are counted."""
        return sum(counts.total() for by_origin in self.fates.values() for counts in by_origin.values())

    def by_topic(self) -> list[TopicDeletions]:
        """Return the rows as entries of the deletion's record."""
        return [
            TopicDeletions(self.deletion.number, self.deletion.why, topic, fates, self.uuids.get(topic, {}))
            for topic, fates in sorted(self.fates.items())
        ]

    def offsets(self) -> dict[str, Runs]:
        """Return the offsets by topic."""
        return {topic: as_runs(np.concatenate(parts)) for topic, parts in self.runs.items()}


def have_offsets(rows: pa.Table) -> Mask:
    """Return which rows have topic and offset: another program may insert rows without them."""
    mask: Mask = np.asarray(rows["topic"].is_valid()) & np.asarray(rows["offset"].is_valid())
    return mask


def with_offsets(rows: pa.Table) -> pa.Table:
    """Return the rows with topic and offset."""
    # Fast path: all rows of our own have both.
    return rows.filter(pa.array(have_offsets(rows))) if rows["topic"].null_count or rows["offset"].null_count else rows


def rows_within(rows: pa.Table, runs: Mapping[str, Runs]) -> Mask:
    """Return which rows have an offset of the runs, by topic."""
    mask: Mask = np.zeros(rows.num_rows, bool)
    offsets = np.asarray(rows["offset"].fill_null(pa.scalar(-1)))
    for topic in map(str, pc.unique(rows["topic"].cast(pa.string()).drop_null()).to_pylist()):
        is_of = np.asarray(is_of_topic(rows, topic).fill_null(pa.scalar(False)))
        mask |= is_of & is_inside(offsets, runs.get(topic, NO_RUNS))
    return mask


def mask_of_topics(folder: TablePath, file: TableFile, runs: Mapping[str, Runs]) -> Mask:
    """Return a mask of the rows of a file of any table that have an offset of the runs, by topic."""
    with open_rows(folder, file, ("topic",)) as rows:
        return mask_of_rows(rows.read(["topic", "partition", "offset"]), runs)


def mask_of_rows(rows: pa.Table | pa.RecordBatch, runs: Mapping[str, Runs]) -> Mask:
    """Return which rows with topic, partition and offset have an offset of the runs, by topic."""
    topics = rows["topic"]
    if not pa.types.is_dictionary(topics.type):
        topics = topics.cast(pa.string()).dictionary_encode()
    named = with_partitions(topics, rows["partition"])
    return rows_within(pa.table({"topic": named, "offset": rows["offset"]}), runs)


def offsets_of_rows(rows: pa.Table) -> dict[str, Runs]:
    """Return the offsets of rows by topic."""
    rows = with_offsets(rows)
    topics = map(str, pc.unique(rows["topic"].cast(pa.string())).to_pylist())
    return {topic: runs_of(np.unique(of_topic(rows, topic)["offset"].to_numpy())) for topic in topics}


def offsets_by_topic(layout: Layout, files: Sequence[TableFile], *, strict: bool = False) -> dict[str, Runs]:
    """Return the offsets of the rows of files of the table ``landed``; ``strict`` as for ``read_rows``."""
    return joined(offsets_of_rows(read_rows(layout.landed, [file], strict=strict)) for file in files)


def landed_offsets(layout: Layout, table: TableReader, before_version: int | None = None) -> dict[str, Runs] | None:
    """Return the offsets that Penstock committed, by topic; None if neither journal nor log of the table say it.

    With ``before_version`` only what the table had before this version: an offset that another program invented may
    land later. From the first to the last offset of a topic: damaged lines of the journal leave no hole.
    """
    commits = list(read_journal(layout))
    if before_version is not None:
        # A line for several batches, of which Spark has forgotten the plans, has the version of the newest: those
        # before this version are in the log of the table.
        commits = [commit for commit in commits if _is_before(commit, before_version)]
    since = table.log_since(commits[-1].batch if commits else -1)
    # The journal may be behind the table: the commits say the ranges of the batches that it does not have yet.
    # A commit without them was made while the plans of Spark were gone: then no row is taken for another program's.
    if not since.is_complete or not all(batch.description.get("ranges") for batch in since.batches):
        return None
    spans = [commit.spans() for commit in commits]
    spans += [
        {name: (int(begin), int(end)) for name, (begin, end) in batch.description["ranges"].items()}
        for batch in since.batches
        if before_version is None or batch.version < before_version
    ]
    requests = load_requests(layout.backfills)
    ends, backfilled = dict[str, OffsetRange](), dict[str, list[OffsetRange]]()
    for name, (begin, end) in (item for by_name in spans for item in by_name.items()):
        if BACKFILL_MARK not in name:
            first, last = ends.get(name, (begin, end))
            ends[name] = min(first, begin), max(last, end)
        elif request := requests.get(name):
            backfilled.setdefault(request.topic, []).extend(request.part(begin, end))
    return joined(
        [{topic: as_runs([span]) for topic, span in ends.items()}, {t: as_runs(runs) for t, runs in backfilled.items()}]
    )


def _is_before(commit: Commit, version: int) -> bool:
    # Batches that are rolled up, or of which the version is unknown, are older than the commits that are looked at.
    return commit.first is not None or commit.version < version

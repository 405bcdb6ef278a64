"""Rows that leave the table: what the ledger must know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, SourceBucket
from penstock.landing.offset_runs import Runs, as_runs, runs_of
from penstock.landing.requests.deletions import Deletion, TopicDeletions
from penstock.landing.row_sums import RowSums
from penstock.landing.table.table_file import TableFile
from penstock.landing.table_paths import Layout
from penstock.proof.evidence import fate, of_topic, read_rows, row_sums, tally
from penstock.proof.uuid_sums import of_events


@dataclass(slots=True)
class DeletedRows:
    """The rows of one deletion: by topic their fates and sums of uuids (by source and bucket), and their offsets.

    Grows file by file. Owned by one thread.
    """

    deletion: Deletion
    fates: dict[str, dict[SourceBucket, Counts]] = field(default_factory=dict)
    uuids: dict[str, dict[SourceBucket, Counts]] = field(default_factory=dict)
    runs: dict[str, list[Runs]] = field(default_factory=dict)
    sums: RowSums = field(default_factory=RowSums)

    def add(self, rows: pa.Table) -> None:
        """Add rows (``evidence.ROWS``) of one file."""
        self.sums.absorb(row_sums(rows))
        for topic in map(str, pc.unique(rows["topic"].cast(pa.string())).to_pylist()):
            topic_rows = of_topic(rows, topic)
            self.runs.setdefault(topic, []).append(runs_of(np.sort(topic_rows["offset"].to_numpy())))
            for origin, fates in tally(topic_rows).items():
                counts = Counts({fate(kind, reason): n for (kind, reason), n in fates.items()})
                self.fates.setdefault(topic, {}).setdefault(origin, Counts()).absorb(counts)
            for origin, sums in of_events(topic_rows).items():
                self.uuids.setdefault(topic, {}).setdefault(origin, Counts()).absorb(sums)

    @property
    def rows(self) -> int:
        """The number of rows."""
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


def offsets_by_topic(layout: Layout, files: Sequence[TableFile]) -> dict[str, Runs]:
    """Return the offsets of the rows of files of the table ``landed``."""
    parts: dict[str, list[Runs]] = {}
    for file in files:
        rows = read_rows(layout.landed, [file])
        for topic in map(str, pc.unique(rows["topic"].cast(pa.string())).to_pylist()):
            offsets = np.unique(of_topic(rows, topic)["offset"].to_numpy())
            parts.setdefault(topic, []).append(runs_of(offsets))
    return {topic: as_runs(np.concatenate(runs)) for topic, runs in parts.items()}

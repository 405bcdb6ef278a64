"""Proofs and their file format: a line for each recent batch; ``proof.rollup`` merges the lines of older ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.counts import WITHOUT_MESSAGE, Counts, Name, SourceBucket
from penstock.files.checked_lines import append_lines, read_lines
from penstock.landing.event_rules import REDACTED
from penstock.landing.history import Sum, read_sum, stretches
from penstock.landing.offset_runs import OffsetRange
from penstock.landing.row_sums import RowSums
from penstock.landing.table_paths import Layout

if TYPE_CHECKING:
    import pyarrow as pa

MAX_STORED_OFFSETS = 1000
"""Limit: unaccounted offsets that a line lists one by one."""


@dataclass(slots=True)
class Proof:
    """The fate of offsets [begin, end) of a topic in a batch, by source and bucket.

    Invariant: the proof holds if ``unaccounted`` (offsets without an explanation) and ``unexpected`` (offsets in the
    batch's files outside its range, or twice) are empty. ``uuids``: number of uuids and sum of their hashes, by fate.
    ``sums``: of the landed rows, for the table of proofs; not compared, as a proof that is made again has none.
    """

    batch: int
    topic: str
    begin: int
    end: int
    counts_by: dict[SourceBucket, Counts] = field(default_factory=dict)
    unaccounted: list[int] = field(default_factory=list)
    unexpected: list[int] = field(default_factory=list)
    uuids: dict[SourceBucket, Counts] = field(default_factory=dict)
    sums: RowSums = field(default_factory=RowSums, compare=False)

    @property
    def holds(self) -> bool:
        """Whether each offset is accounted for exactly once."""
        return not self.unaccounted and not self.unexpected

    def add(self, origin: SourceBucket, name: str, count: int = 1) -> None:
        self.counts_by.setdefault(origin, Counts())[name] += count

    def absorb(self, following: Proof) -> None:
        """Add the proof of the range that follows this one; from a proof of an empty range, take the counts only."""
        if following.begin < following.end:
            self.begin, self.end = (
                (self.begin, following.end) if self.begin < self.end else (following.begin, following.end)
            )
        for sums, added in ((self.counts_by, following.counts_by), (self.uuids, following.uuids)):
            for origin, counts in added.items():
                sums.setdefault(origin, Counts()).absorb(counts)
        self.unaccounted += following.unaccounted
        self.unexpected += following.unexpected
        self.sums.absorb(following.sums)

    def count_rows(self, rows: pa.Table) -> None:
        """Count rows of the table (schema ``evidence.ROWS``) by fate, and sum their uuids."""
        # Imports the engines of tables, which readers of proofs do without.
        from penstock.proof.evidence import fate, tally
        from penstock.proof.uuid_sums import of_events

        for origin, fates in tally(rows).items():
            for (kind, reason), count in fates.items():
                self.add(origin, fate(kind, reason), count)
                if reason == REDACTED:
                    self.add(origin, Name.REDACTED, count)
        self.uuids = of_events(rows)

    def total(self, prefix: str = "") -> int:
        """Return the number of offsets with a fate; with ``prefix``, the sum of counts whose names begin with it."""
        return sum(counts.total(prefix) if prefix else counts.rows() for counts in self.counts_by.values())

    @property
    def rows(self) -> int:
        """The number of messages, unaccounted ones included; offsets of Kafka that show no message do not count."""
        return self.total() - sum(self.total(prefix) for prefix in WITHOUT_MESSAGE) + len(self.unaccounted)

    def document(self) -> dict[str, Any]:
        """Return JSON-ready fields; of long lists of offsets only the first ones."""
        counts = [
            {"source": origin[0], "bucket": origin[1], "counts": counts.pruned()}
            | ({"uuids": self.uuids[origin].pruned()} if origin in self.uuids else {})
            for origin, counts in sorted(self.counts_by.items())
        ]
        document: dict[str, Any] = {"batch": self.batch, "topic": self.topic, "begin": self.begin, "end": self.end}
        for name, offsets in (("unaccounted", self.unaccounted), ("unexpected", self.unexpected)):
            if offsets:
                document[name] = offsets[:MAX_STORED_OFFSETS]
        if self.sums:
            document["sums"] = self.sums.document()
        return {**document, "counts": counts}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Proof:
        """Read the fields of ``document``. Raises KeyError, TypeError or ValueError."""
        counts = {(str(c["source"]), int(c["bucket"])): Counts(c["counts"]) for c in document["counts"]}
        unaccounted, unexpected = (
            [int(offset) for offset in document.get(name, ())] for name in ("unaccounted", "unexpected")
        )
        batch, begin, end = (int(document[name]) for name in ("batch", "begin", "end"))
        uuids = {(str(c["source"]), int(c["bucket"])): Counts(c["uuids"]) for c in document["counts"] if "uuids" in c}
        sums = RowSums.from_document(document.get("sums", ()))
        return cls(batch, str(document["topic"]), begin, end, counts, unaccounted, unexpected, uuids, sums)


@dataclass(slots=True)
class BackfillProof:
    """The fate of the offsets of a backfill request (``refill`` in files), of which ``rows`` landed.

    ``ahead``: offsets beyond the end of the topic's landing, which skips them when it gets there.
    """

    number: int
    proof: Proof
    ahead: tuple[OffsetRange, ...] = ()
    rows: int = 0

    def document(self) -> dict[str, Any]:
        """Return JSON-ready fields."""
        ahead = [list(run) for run in self.ahead]
        return {**self.proof.document(), "refill": self.number, "ahead": ahead, "rows": self.rows}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> BackfillProof:
        """Read the fields of ``document``. Raises KeyError, TypeError or ValueError."""
        ahead = tuple((int(begin), int(end)) for begin, end in document["ahead"])
        return cls(int(document["refill"]), Proof.from_document(document), ahead, int(document["rows"]))


@dataclass(frozen=True, slots=True)
class ProvedBatch:
    """The proofs of a batch, or of several that were rolled up: a line of ``landed.proofs.jsonl``."""

    batch: int
    proofs: list[Proof]
    backfills: list[BackfillProof]

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ProvedBatch:
        """Read a line. Raises KeyError, TypeError, ValueError or AttributeError."""
        backfills = [BackfillProof.from_document(fields) for fields in document.get("refills", ())]
        return cls(int(document["batch"]), [Proof.from_document(fields) for fields in document["proofs"]], backfills)

    @property
    def all_proofs(self) -> list[Proof]:
        """The proofs of the batch's topics and backfill requests."""
        return [*self.proofs, *(backfill.proof for backfill in self.backfills)]

    def totals(self) -> dict[str, int]:
        """Return the number of rows by fate (``history.TOTALS``)."""
        proofs = self.all_proofs
        return {
            "rows": sum(proof.rows for proof in proofs),
            "quarantined": sum(proof.total("quarantined.") for proof in proofs),
            "duplicates": sum(proof.total("duplicate") for proof in proofs),
            "unaccounted": sum(len(proof.unaccounted) for proof in proofs),
        }


def latest_proofs(layout: Layout) -> tuple[Sum, list[ProvedBatch]]:
    """Return the sum of rolled-up batches, and the proofs since."""
    batches = list(read_lines(layout.proofs, ProvedBatch.from_document))
    # Order: lines first, then the sum. A rollup writes the sum before it drops lines, so no batch is missed.
    rolled = read_sum(layout)
    return rolled, [batch for batch in batches if batch.batch > rolled.batch]


def proved_batches(layout: Layout) -> Iterator[ProvedBatch]:
    """Yield all proofs, rolled-up ones first."""
    recent = list(read_lines(layout.proofs, ProvedBatch.from_document))
    last = -1
    for batch in rolled_proofs(layout):
        yield batch
        last = batch.batch
    yield from (batch for batch in recent if batch.batch > last)


def rolled_proofs(layout: Layout) -> Iterator[ProvedBatch]:
    """Yield the rolled-up proofs."""
    for stretch in stretches(layout):
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            yield ProvedBatch.from_document(
                {"batch": stretch.batch, "proofs": stretch.proofs, "refills": stretch.refills}
            )


def read_proofs(layout: Layout) -> Iterator[list[Proof]]:
    """Yield the stored proofs of each batch or stretch."""
    yield from (batch.proofs for batch in proved_batches(layout))


def proved_backfills(layout: Layout) -> Iterator[BackfillProof]:
    """Yield the stored proofs of backfill requests."""
    for batch in proved_batches(layout):
        yield from batch.backfills


def write_proofs(layout: Layout, batch: int, proofs: Sequence[Proof], backfills: Sequence[BackfillProof] = ()) -> None:
    """Append the proofs of a batch to their file, and sync it."""
    more = {"refills": [backfill.document() for backfill in backfills]} if backfills else {}
    append_lines(layout.proofs, [{"batch": batch, "proofs": [proof.document() for proof in proofs], **more}])

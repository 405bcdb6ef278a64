"""Proofs as they are written down: a line for each batch of late, those of before rolled up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.counts import Counts, Name, SourceBucket
from penstock.files.checked_lines import append_lines, read_lines
from penstock.landing.event_rules import REDACTED
from penstock.landing.history import Sum, read_sum, stretches
from penstock.landing.offset_runs import OffsetRange
from penstock.landing.table_paths import Layout
from penstock.proof.evidence import fate, tally
from penstock.proof.uuid_sums import of_events

SHOWN = 1000
"""Most unaccounted offsets that are written down one by one."""


@dataclass(slots=True)
class Proof:
    """What became of offsets [begin, end) of a topic in a batch, by source and bucket.

    ``unaccounted``: offsets of which nothing is known. ``unexpected``: offsets in the batch's files that are not
    of its range, or stand there twice. Both are empty, or something is wrong. ``uuids``: how many of them are known
    and the sum of their hashes, by fate.
    """

    batch: int
    topic: str
    begin: int
    end: int
    counts_by: dict[SourceBucket, Counts] = field(default_factory=dict)
    unaccounted: list[int] = field(default_factory=list)
    unexpected: list[int] = field(default_factory=list)
    uuids: dict[SourceBucket, Counts] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether every offset is accounted for, once."""
        return not self.unaccounted and not self.unexpected

    def add(self, place: SourceBucket, name: str, count: int = 1) -> None:
        self.counts_by.setdefault(place, Counts())[name] += count

    def absorb(self, other: Proof) -> None:
        """Take in the proof of offsets that follow, or of none."""
        if other.begin < other.end:
            self.begin, self.end = (self.begin, other.end) if self.begin < self.end else (other.begin, other.end)
        for mine, told in ((self.counts_by, other.counts_by), (self.uuids, other.uuids)):
            for place, counts in told.items():
                mine.setdefault(place, Counts()).absorb(counts)
        self.unaccounted += other.unaccounted
        self.unexpected += other.unexpected

    def enter(self, rows: pa.Table) -> None:
        """Count rows (``evidence.ROWS``) of the table."""
        for place, fates in tally(rows).items():
            for (kind, reason), count in fates.items():
                self.add(place, fate(kind, reason), count)
                if reason == REDACTED:
                    self.add(place, Name.REDACTED, count)
        self.uuids = of_events(rows)

    def total(self, prefix: str = "") -> int:
        """The sum of all counts whose name begins with ``prefix``; without one, of messages."""
        return sum(counts.total(prefix) if prefix else counts.rows() for counts in self.counts_by.values())

    def document(self) -> dict[str, Any]:
        """JSON-ready; of long lists of offsets only the first ones."""
        counts = [
            {"source": place[0], "bucket": place[1], "counts": counts.pruned()}
            | ({"uuids": self.uuids[place].pruned()} if place in self.uuids else {})
            for place, counts in sorted(self.counts_by.items())
        ]
        found: dict[str, Any] = {"batch": self.batch, "topic": self.topic, "begin": self.begin, "end": self.end}
        for name, offsets in (("unaccounted", self.unaccounted), ("unexpected", self.unexpected)):
            if offsets:
                found[name] = offsets[:SHOWN]
        return {**found, "counts": counts}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Proof:
        """From ``document``. Raises KeyError, TypeError or ValueError."""
        counts = {(str(c["source"]), int(c["bucket"])): Counts(c["counts"]) for c in document["counts"]}
        left, more = ([int(offset) for offset in document.get(name, ())] for name in ("unaccounted", "unexpected"))
        batch, begin, end = (int(document[name]) for name in ("batch", "begin", "end"))
        uuids = {(str(c["source"]), int(c["bucket"])): Counts(c["uuids"]) for c in document["counts"] if "uuids" in c}
        return cls(batch, str(document["topic"]), begin, end, counts, left, more, uuids)


@dataclass(slots=True)
class BackfillProof:
    """What became of offsets that were asked for: ``rows`` landed, and what of them counts.

    ``ahead``: those that the topic's own turn passes over.
    """

    number: int
    proof: Proof
    ahead: tuple[OffsetRange, ...] = ()
    rows: int = 0

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        ahead = [list(run) for run in self.ahead]
        return {**self.proof.document(), "refill": self.number, "ahead": ahead, "rows": self.rows}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> BackfillProof:
        """From ``document``. Raises KeyError, TypeError or ValueError."""
        ahead = tuple((int(begin), int(end)) for begin, end in document["ahead"])
        return cls(int(document["refill"]), Proof.of(document), ahead, int(document["rows"]))


@dataclass(frozen=True, slots=True)
class ProvedBatch:
    """The proofs of a batch, or of several that were rolled up: a line of ``landed.proofs.jsonl``."""

    batch: int
    proofs: list[Proof]
    refills: list[BackfillProof]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ProvedBatch:
        """From a line. Raises KeyError, TypeError, ValueError or AttributeError."""
        refills = [BackfillProof.of(one) for one in told.get("refills", ())]
        return cls(int(told["batch"]), [Proof.of(one) for one in told["proofs"]], refills)

    @property
    def settled(self) -> list[Proof]:
        """All of its proofs."""
        return [*self.proofs, *(refill.proof for refill in self.refills)]

    def totals(self) -> dict[str, int]:
        """How many rows of what fate (``history.TOTALS``)."""
        proofs = self.settled
        return {
            "rows": sum(proof.total() + len(proof.unaccounted) for proof in proofs),
            "quarantined": sum(proof.total("quarantined.") for proof in proofs),
            "duplicates": sum(proof.total("duplicate") for proof in proofs),
            "unaccounted": sum(len(proof.unaccounted) for proof in proofs),
        }


def latest_proofs(layout: Layout) -> tuple[Sum, list[ProvedBatch]]:
    """The sum of what is rolled up, and the proofs since."""
    found = list(read_lines(layout.proofs, ProvedBatch.of))  # before the sum: lines go when that has them
    rolled = read_sum(layout)
    return rolled, [one for one in found if one.batch > rolled.batch]


def proved_batches(layout: Layout) -> Iterator[ProvedBatch]:
    """All proofs, those of before rolled up."""
    found = list(read_lines(layout.proofs, ProvedBatch.of))
    last = -1
    for one in rolled_proofs(layout):
        yield one
        last = one.batch
    yield from (one for one in found if one.batch > last)


def rolled_proofs(layout: Layout) -> Iterator[ProvedBatch]:
    """Those that were rolled up."""
    for one in stretches(layout):
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            yield ProvedBatch.of({"batch": one.batch, "proofs": one.proofs, "refills": one.refills})


def read_proofs(layout: Layout) -> Iterator[list[Proof]]:
    """The proofs written down, batch by batch, or stretch by stretch."""
    yield from (batch.proofs for batch in proved_batches(layout))


def proved_refills(layout: Layout) -> Iterator[BackfillProof]:
    """What landed out of turn, as it was proved."""
    for batch in proved_batches(layout):
        yield from batch.refills


def write_proofs(layout: Layout, batch: int, proofs: Sequence[Proof], refills: Sequence[BackfillProof] = ()) -> None:
    """Write down the proofs of a batch; synced."""
    more = {"refills": [refill.document() for refill in refills]} if refills else {}
    append_lines(layout.proofs, [{"batch": batch, "proofs": [proof.document() for proof in proofs], **more}])

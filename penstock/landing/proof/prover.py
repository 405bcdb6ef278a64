"""The proof that a committed micro-batch lost nothing (the balance, section 9).

For every topic of the batch: each offset of its range is in the table, or in a gap of the log, or is read
again from the log and found to be a valid event whose uuid landed at another offset within the window: a
duplicate. Whatever is left is unaccounted. Only files are read, so it works with no Spark and no daemon
running, and from the first batch on as well as for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts, Name, SourceBucket
from penstock.files.checked_lines import append_lines, read_lines
from penstock.landing.backfill.requests import OffsetRange, Request, inside, offsets_of, requests
from penstock.landing.backfill.requests import of_topic as of_topic_requests
from penstock.landing.event_rules import REDACTED, MessageKind
from penstock.landing.journal import PARTITION_MARK, Commit, read_journal
from penstock.landing.proof.evidence import (
    NO_ROWS,
    LandedUuids,
    Offsets,
    in_gaps,
    of_topic,
    split_offsets,
    tally,
)
from penstock.landing.proof.reread import LogRecords, RereadSource, Suspect, is_partition
from penstock.landing.proof.rows_of_batches import RowsOf, SnapshotRows, of_its_files
from penstock.landing.proof.uuid_sums import EVENT, counted, hashes, of_events
from penstock.landing.table_paths import Layout

Verify = Callable[[str, int, int], None]
"""Asks the owner of the log to check offsets [begin, end) of a topic: what is corrupt becomes a gap."""
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

    def enter(self, rows: pa.Table) -> None:
        """Count rows (``evidence.ROWS``) of the table."""
        for place, fates in tally(rows).items():
            for (kind, reason), count in fates.items():
                self.add(place, _fate(kind, reason), count)
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


class Prover:
    """Proves batches in order. ``topics`` is the folder of the topics; ``window`` the duplicate window in seconds.

    ``kafka``: the records of Kafka's partitions, where these are landed; ``log``: those of the log, where there is no
    folder of topics. ``rows_of``: where the rows of a batch are, if not in the files that it wrote.
    """

    def __init__(
        self,
        topics: Path,
        layout: Layout,
        *,
        window: float = 600.0,
        event_types: Sequence[str] = (),
        verify: Verify | None = None,
        kafka: RereadSource | None = None,
        log: RereadSource | None = None,
        rows_of: RowsOf | None = None,
    ) -> None:
        self._layout = layout
        self._rows_of = rows_of or of_its_files(layout)
        self._log = log or LogRecords(topics, event_types)
        self._kafka = kafka
        self._verify = verify
        self._landed = LandedUuids(self._rows_of, window)

    def remember(self, commit: Commit) -> None:
        """Take in a batch that was proved before: duplicates may have their survivor there."""
        self._landed.remember(commit)

    def prove(self, commit: Commit, earlier: Mapping[str, Proof] | None = None) -> list[Proof]:
        """One proof for each topic of the batch. ``earlier``: proofs of this batch from before, by topic.

        They are believed where the log has expired since and the table still says the same. Raises what
        ``verify`` raises; then nothing is decided, and it is to be called again.
        """
        rows = self._rows_of(commit)
        self._landed.remember(commit, rows)
        ranges = commit.ranges()
        rows = without_refilled(rows, requested(self._layout, commit))
        strangers = set(pc.unique(rows["topic"].cast(pa.string())).to_pylist()) - set(ranges)
        ranges |= dict.fromkeys(strangers, (0, 0))  # type: ignore[arg-type]  # every row has a topic
        return [
            self._prove_topic(
                Proof(commit.batch, topic, *ranges[topic]), of_topic(rows, topic), (earlier or {}).get(topic)
            )
            for topic in sorted(ranges)
        ]

    def refills(self, commit: Commit, unproved: Mapping[str, set[int]] | None = None) -> list[BackfillProof]:
        """What became of the offsets of requests in a batch; after ``prove``.

        Of those that were committed before only the ones that no proof counted are counted now: as the request says, or
        those in ``unproved`` where given.
        """
        asked = requested(self._layout, commit)
        rows = self._rows_of(commit) if asked else NO_ROWS
        return [self._refill(commit, request, runs, of_topic(rows, request.topic), unproved) for request, runs in asked]

    def _refill(
        self,
        commit: Commit,
        request: Request,
        runs: Sequence[OffsetRange],
        rows: pa.Table,
        unproved: Mapping[str, set[int]] | None,
    ) -> BackfillProof:
        rows = rows.filter(pa.array(inside(rows["offset"].to_numpy(), runs)))
        wanted = offsets_of(runs)
        proof = Proof(commit.batch, request.topic, runs[0][0], runs[-1][1])
        owed = set(request.owed) if unproved is None else unproved.get(request.topic, set())
        counted_rows = rows.filter(pa.array(np.isin(rows["offset"].to_numpy(), list(owed)))) if request.again else rows
        proof.enter(counted_rows)
        missing = np.setdiff1d(wanted, rows["offset"].to_numpy())
        if len(missing):
            self._explain(proof, missing, None)
        return BackfillProof(request.number, proof, () if request.again else tuple(runs), rows.num_rows)

    def _prove_topic(self, proof: Proof, rows: pa.Table, earlier: Proof | None) -> Proof:
        missing, unexpected = split_offsets(rows["offset"].to_numpy(), proof.begin, proof.end)
        proof.unexpected = unexpected.tolist()
        for request in of_topic_requests(self._layout, proof.topic, again=False):
            missing = missing[~inside(missing, request.runs)]  # counted with the request
        proof.enter(rows)
        if len(missing):
            self._explain(proof, missing, earlier)
        return proof

    def _explain(self, proof: Proof, missing: Offsets, earlier: Proof | None) -> None:
        """Find a reason for every offset that is not in the table."""
        records = self._records(proof.topic)
        again = records.again(proof.topic, in_gaps(missing, records.gaps(proof.topic))[0])
        for begin, end in again.corrupt if self._verify else ():
            self._verify(proof.topic, begin, end)  # type: ignore[misc]
        left, lost = in_gaps(missing, [*records.gaps(proof.topic), *again.gone])
        if lost and earlier and _agrees(proof, earlier, len(missing)):
            proof.counts_by, proof.unaccounted = earlier.counts_by, earlier.unaccounted
            proof.uuids = {place: _joined(place, proof, earlier) for place in {*proof.uuids, *earlier.uuids}}
            return
        for place, reasons in lost.items():
            for reason, count in reasons.items():
                proof.add(place, Name.GAP + reason, count)
        for place in again.segments.values():
            proof.add(place, Name.SEGMENT)
        self._duplicates(proof, np.setdiff1d(left, list(again.segments)), again.suspects)

    def _records(self, topic: str) -> RereadSource:
        return self._kafka if is_partition(topic) and self._kafka is not None else self._log

    def _duplicates(self, proof: Proof, left: Offsets, suspects: Sequence[Suspect]) -> None:
        wanted: dict[str, list[int]] = {}
        for suspect in suspects:
            if suspect.event:
                wanted.setdefault(suspect.event.uuid, []).append(suspect.micros)
        topic = proof.topic.partition(PARTITION_MARK)[0]
        landed = self._landed.find({topic: wanted}).get(topic, {})
        known = {
            s.offset: (s.place, s.event.uuid)
            for s in suspects
            if s.event and self._landed.within(s.micros, landed.get(s.event.uuid, ()))
        }
        for offset in left.tolist():
            if offset in known:
                place, uuid = known[offset]
                proof.add(place, Name.DUPLICATE)
                one = counted(Name.DUPLICATE, 1, int(hashes([uuid])[0]))
                proof.uuids.setdefault(place, Counts()).absorb(one)
            else:
                proof.unaccounted.append(offset)


def _joined(place: SourceBucket, proof: Proof, earlier: Proof) -> Counts:
    """The uuids of the table as they are now, and of the duplicates as they were read before they expired."""
    now, then = proof.uuids.get(place, Counts()), earlier.uuids.get(place, Counts())
    return Counts({**{n: c for n, c in then.items() if not n.endswith(EVENT)}, **now})


def _fate(kind: str, reason: str) -> str:
    if kind == MessageKind.DROPPED:
        return Name.DROPPED
    return Name.QUARANTINED + reason if kind == MessageKind.QUARANTINE else Name.LANDED + kind


def _agrees(proof: Proof, earlier: Proof, missing: int) -> bool:
    """Whether the table has exactly what it had at the time of an earlier proof of the same range."""

    def landed(one: Proof) -> dict[SourceBucket, Counts]:
        names = (Name.LANDED.value, Name.QUARANTINED.value, Name.DROPPED.value)
        kept = {p: Counts({n: c for n, c in by.items() if n.startswith(names)}) for p, by in one.counts_by.items()}
        return {place: counts for place, counts in kept.items() if counts}

    total = earlier.total() + len(earlier.unaccounted)
    same_range = (proof.begin, proof.end) == (earlier.begin, earlier.end)
    return same_range and landed(proof) == landed(earlier) and total == proof.total() + missing


@dataclass(frozen=True, slots=True)
class ProvedBatch:
    """The proofs of a batch, as they are written down: a line of ``landed.proofs.jsonl``."""

    batch: int
    proofs: list[Proof]
    refills: list[BackfillProof]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ProvedBatch:
        """From a line. Raises KeyError, TypeError, ValueError or AttributeError."""
        refills = [BackfillProof.of(one) for one in told.get("refills", ())]
        return cls(int(told["batch"]), [Proof.of(one) for one in told["proofs"]], refills)


def read_proofs(layout: Layout, *, repair: bool = False) -> Iterator[list[Proof]]:
    """The proofs written down, batch by batch."""
    yield from (batch.proofs for batch in read_lines(layout.proofs, ProvedBatch.of, repair=repair))


def proved_refills(layout: Layout) -> Iterator[BackfillProof]:
    """What landed out of turn, as it was proved."""
    for batch in read_lines(layout.proofs, ProvedBatch.of):
        yield from batch.refills


def write_proofs(layout: Layout, batch: int, proofs: Sequence[Proof], refills: Sequence[BackfillProof] = ()) -> None:
    """Write down the proofs of a batch; synced."""
    more = {"refills": [refill.document() for refill in refills]} if refills else {}
    append_lines(layout.proofs, [{"batch": batch, "proofs": [proof.document() for proof in proofs], **more}])


def requested(layout: Layout, commit: Commit) -> list[tuple[Request, list[OffsetRange]]]:
    """The requests that a batch worked on, with the offsets of each that it had."""
    spans = commit.refills()
    known = requests(layout.refills) if spans else {}
    return [(known[name], known[name].part(*span)) for name, span in spans.items() if name in known]


def without_refilled(rows: pa.Table, done: Sequence[tuple[Request, Sequence[OffsetRange]]]) -> pa.Table:
    """The rows that landed in their topic's own turn."""
    for request, runs in done:
        mine = pc.equal(rows["topic"].cast(pa.string()), pa.scalar(request.topic)).to_numpy()
        rows = rows.filter(pa.array(~(mine.astype(bool) & inside(rows["offset"].to_numpy(), runs))))
    return rows


def rebuild(
    topics: Path,
    layout: Layout,
    *,
    window: float = 600.0,
    event_types: Sequence[str] = (),
    kafka: RereadSource | None = None,
) -> Iterator[Proof | BackfillProof]:
    """The proofs of all batches again, from the table and the log; earlier ones only for what has expired."""
    written = {proofs[0].batch: {p.topic: p for p in proofs} for proofs in read_proofs(layout) if proofs}
    rows_of = SnapshotRows(layout)
    prover = Prover(topics, layout, window=window, event_types=event_types, kafka=kafka, rows_of=rows_of)
    unproved: dict[str, set[int]] = {}
    for commit in read_journal(layout):
        for proof in prover.prove(commit, written.get(commit.batch)):
            unproved.setdefault(proof.topic, set()).update(proof.unaccounted)
            yield proof
        for refill in prover.refills(commit, unproved):
            unproved.get(refill.proof.topic, set()).difference_update(range(refill.proof.begin, refill.proof.end))
            yield refill

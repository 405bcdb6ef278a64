"""The proof that a committed micro-batch lost nothing (the balance, section 9).

For every topic of the batch: each offset of its range is in the table, or in a gap of the log, or is read
again from the log and found to be a valid event whose uuid landed at another offset within the window: a
duplicate. Whatever is left is unaccounted. Only files are read, so it works with no Spark and no daemon
running, and from the first batch on as well as for the last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from penstock.counts import Counts, Name, SourceBucket
from penstock.landing.journal import PARTITION_MARK, Commit, read_journal
from penstock.landing.offset_runs import (
    NO_RUNS,
    OffsetRange,
    Runs,
    as_runs,
    common,
    inside,
    length,
    offsets_of,
    outside,
    runs_of,
)
from penstock.landing.requests.backfill_requests import Request, requests
from penstock.landing.requests.backfill_requests import of_topic as of_topic_requests
from penstock.landing.requests.deletions import Record
from penstock.landing.table_paths import Layout
from penstock.ledger.daily_rollup import roll_counts
from penstock.proof.evidence import (
    NO_ROWS,
    LandedUuids,
    codes,
    in_gaps,
    is_of_topic,
    of_topic,
    split_offsets,
)
from penstock.proof.foreign_deletions import unaccounted_deletions
from penstock.proof.proofs import BackfillProof, Proof, read_proofs
from penstock.proof.reread import LogRecords, RereadSource, Suspect, is_partition
from penstock.proof.rows_of_batches import RowsOf, SnapshotRows, of_its_files, survivors
from penstock.proof.uuid_sums import counted, hashes

Verify = Callable[[str, int, int], None]
"""Asks the owner of the log to check offsets [begin, end) of a topic: what is corrupt becomes a gap."""
OF_TABLE = (str(Name.LANDED), str(Name.QUARANTINED), str(Name.DROPPED))
"""Counts of rows that are in the table."""
LATE = 1 << 60
NEAR = 1_000_000
"""Offsets before and after a batch among which the first of a duplicate may be."""
NOTHING: Mapping[str, Runs] = MappingProxyType({})


class Prover:
    """Proves batches in order. ``topics`` is the folder of the topics; ``window`` the duplicate window in seconds.

    ``kafka``: the records of Kafka's partitions, where these are landed; ``log``: those of the log, where there is no
    folder of topics. ``rows_of``: where the rows of a batch are, if not in the files that it wrote; ``deleted``: the
    offsets of those that were taken out since.
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
        deleted: Mapping[str, Runs] = NOTHING,
    ) -> None:
        self._layout, self._deleted = layout, deleted
        self._rows_of = rows_of or of_its_files(layout)
        self._log = log or LogRecords(topics, event_types)
        self._kafka = kafka
        self._verify = verify
        self._landed = LandedUuids(self._rows_of, window)
        self._window = round(window * 1_000_000)

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
        numbers, topics = codes(rows["topic"])
        strangers = {topics[number] for number in np.unique(numbers.to_numpy()).tolist()} - set(ranges)
        ranges |= dict.fromkeys(strangers, (0, 0))
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
        proof = Proof(commit.batch, request.topic, runs[0][0], runs[-1][1])
        owed = set(request.owed) if unproved is None else unproved.get(request.topic, set())
        counted_rows = rows.filter(pa.array(np.isin(rows["offset"].to_numpy(), list(owed)))) if request.again else rows
        proof.enter(counted_rows)
        there = runs_of(np.unique(rows["offset"].to_numpy()))
        missing, deleted = self._not_deleted(proof.topic, outside(as_runs(runs), there))
        if len(missing):
            self._explain(proof, missing, None, deleted)
        return BackfillProof(request.number, proof, () if request.again else tuple(runs), rows.num_rows)

    def _prove_topic(self, proof: Proof, rows: pa.Table, earlier: Proof | None) -> Proof:
        missing, unexpected = split_offsets(rows["offset"].to_numpy(), proof.begin, proof.end)
        proof.unexpected = unexpected.tolist()
        for request in of_topic_requests(self._layout, proof.topic, again=False):
            missing = outside(missing, request.runs)  # counted with the request
        proof.enter(rows)
        missing, deleted = self._not_deleted(proof.topic, missing)
        if len(missing):
            self._explain(proof, missing, earlier, deleted)
        return proof

    def _not_deleted(self, topic: str, missing: Runs) -> tuple[Runs, int]:
        """Without the offsets whose rows were taken out of the table, and how many these are."""
        left = outside(missing, self._deleted.get(topic, NO_RUNS))
        return left, length(missing) - length(left)

    def _explain(self, proof: Proof, missing: Runs, earlier: Proof | None, deleted: int = 0) -> None:
        """Find a reason for every offset that is not in the table."""
        records = self._records(proof.topic)
        again = records.again(proof.topic, in_gaps(missing, records.gaps(proof.topic))[0])
        for begin, end in again.corrupt if self._verify else ():
            self._verify(proof.topic, begin, end)  # type: ignore[misc]
        left, lost = in_gaps(missing, [*records.gaps(proof.topic), *again.gone])
        if lost and earlier and _agrees(proof, earlier, length(missing), deleted):
            proof.counts_by, proof.unaccounted = _believed(proof, earlier), earlier.unaccounted
            proof.uuids = {place: _joined(place, proof, earlier) for place in {*proof.uuids, *earlier.uuids}}
            return
        for place, reasons in lost.items():
            for reason, count in reasons.items():
                proof.add(place, Name.GAP + reason, count)
        for place in again.segments.values():
            proof.add(place, Name.SEGMENT)
        self._duplicates(proof, outside(left, [(at, at + 1) for at in again.segments]), again.suspects)

    def _records(self, topic: str) -> RereadSource:
        return self._kafka if is_partition(topic) and self._kafka is not None else self._log

    def _duplicates(self, proof: Proof, left: Runs, suspects: Sequence[Suspect]) -> None:
        wanted: dict[str, list[int]] = {}
        for suspect in suspects:
            if suspect.event:
                wanted.setdefault(suspect.event.uuid, []).append(suspect.micros)
        topic = proof.topic.partition(PARTITION_MARK)[0]
        landed = self._landed.find({topic: wanted}).get(topic, {})
        alone = {uuid: self._without_survivor(times, landed.get(uuid, ())) for uuid, times in wanted.items()}
        if any(alone.values()):  # such as after a restart, of what landed long before it
            for uuid, times in survivors(self._layout, topic, alone, self._window).items():
                landed[uuid] = [*landed.get(uuid, ()), *times]
            for uuid, times in self._deleted_survivors(proof, alone).items():
                landed[uuid] = [*landed.get(uuid, ()), *times]
        known = {
            s.offset: (s.place, s.event.uuid)
            for s in suspects
            if s.event and self._landed.within(s.micros, landed.get(s.event.uuid, ()))
        }
        repeated: dict[SourceBucket, list[str]] = {}
        for offset in offsets_of(left).tolist():
            if offset in known:
                place, uuid = known[offset]
                repeated.setdefault(place, []).append(uuid)
            else:
                proof.unaccounted.append(offset)
        for place, uuids in repeated.items():
            proof.add(place, Name.DUPLICATE, len(uuids))
            sums = counted(Name.DUPLICATE, len(uuids), int(hashes(uuids).sum()))
            proof.uuids.setdefault(place, Counts()).absorb(sums)

    def _deleted_survivors(self, proof: Proof, wanted: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """When events landed that were taken out of the table since, as the log still has them."""
        runs = Record(self._layout).runs().get(proof.topic, NO_RUNS)
        near = common(runs, as_runs([(proof.begin - NEAR, proof.end + NEAR)]))
        found: dict[str, list[int]] = {}
        for suspect in self._records(proof.topic).again(proof.topic, near).suspects if len(near) else ():
            if suspect.event and wanted.get(suspect.event.uuid):
                found.setdefault(suspect.event.uuid, []).append(suspect.micros)
        return found

    def _without_survivor(self, times: Sequence[int], landed: Sequence[int]) -> list[int]:
        return [at for at in times if not self._landed.within(at, landed)]


def _joined(place: SourceBucket, proof: Proof, earlier: Proof) -> Counts:
    """The uuids of the table as they are now, and of the duplicates as they were read before they expired."""
    now, then = proof.uuids.get(place, Counts()), earlier.uuids.get(place, Counts())
    return Counts({**{n: c for n, c in then.items() if f".{Name.LANDED}" not in n}, **now})


def _agrees(proof: Proof, earlier: Proof, missing: int, deleted: int) -> bool:
    """Whether the table has exactly what it had at the time of an earlier proof of the same range, but for as many rows
    as were deleted since.
    """
    now, then = (_by_day(_of_table(one.counts_by)) for one in (proof, earlier))
    same_rows = now == then if not deleted else all(now[p][n] <= then[p][n] for p in now for n in now[p])
    total = earlier.total() + len(earlier.unaccounted)
    same_range = (proof.begin, proof.end) == (earlier.begin, earlier.end)
    return same_range and same_rows and total == proof.total() + missing + deleted


def _believed(proof: Proof, earlier: Proof) -> dict[SourceBucket, Counts]:
    """What the table has now, and of what it never had what was proved before."""
    found = {place: Counts(counts) for place, counts in _of_table(proof.counts_by).items()}
    for place, counts in earlier.counts_by.items():
        others = Counts({name: n for name, n in counts.items() if not name.startswith(OF_TABLE)})
        if others:
            found.setdefault(place, Counts()).absorb(others)
    return found


def _of_table(counts_by: Mapping[SourceBucket, Counts]) -> dict[SourceBucket, Counts]:
    kept = {p: Counts({n: c for n, c in by.items() if n.startswith(OF_TABLE)}) for p, by in counts_by.items()}
    return {place: counts for place, counts in kept.items() if counts}


def _by_day(counts_by: Mapping[SourceBucket, Counts]) -> defaultdict[SourceBucket, Counts]:
    """As proofs of long ago are kept."""
    return defaultdict(Counts, roll_counts(counts_by, LATE))


def requested(layout: Layout, commit: Commit) -> list[tuple[Request, list[OffsetRange]]]:
    """The requests that a batch worked on, with the offsets of each that it had."""
    spans = commit.refills()
    known = requests(layout.refills) if spans else {}
    return [(known[name], known[name].part(*span)) for name, span in spans.items() if name in known]


def without_refilled(rows: pa.Table, done: Sequence[tuple[Request, Sequence[OffsetRange]]]) -> pa.Table:
    """The rows that landed in their topic's own turn."""
    for request, runs in done:
        mine = is_of_topic(rows, request.topic).to_numpy()
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
    rows_of, deleted = SnapshotRows(layout), Record(layout).runs()
    for foreign in unaccounted_deletions(layout):
        for topic, runs in foreign.runs.items():
            deleted[topic] = as_runs(np.concatenate([*runs, deleted.get(topic, NO_RUNS)]))
    prover = Prover(
        topics, layout, window=window, event_types=event_types, kafka=kafka, rows_of=rows_of, deleted=deleted
    )
    unproved: dict[str, set[int]] = {}
    for commit in read_journal(layout):
        for proof in prover.prove(commit, written.get(commit.batch)):
            unproved.setdefault(proof.topic, set()).update(proof.unaccounted)
            yield proof
        for refill in prover.refills(commit, unproved):
            unproved.get(refill.proof.topic, set()).difference_update(range(refill.proof.begin, refill.proof.end))
            yield refill

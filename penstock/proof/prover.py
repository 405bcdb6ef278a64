"""The proof that a committed batch lost nothing (docs/accounting.md, section 9).

Invariant: each offset of the batch's range is a row of the table, or in a gap of the log, or a duplicate: read again
from the log, it is an event whose uuid landed at another offset within the window. Each other offset is unaccounted.
Only files are read, so a proof needs neither Spark nor the daemon, and is the same for the first batch and the last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from penstock.counts import Counts, Name, SourceBucket, fate_of_gap
from penstock.landing.journal import Commit, read_journal
from penstock.landing.offset_runs import (
    NO_RUNS,
    OffsetRange,
    Runs,
    as_runs,
    count_offsets,
    difference,
    intersection,
    is_inside,
    offsets_of,
    runs_of,
)
from penstock.landing.requests.backfill_requests import Request, load_requests, requests_for_topic
from penstock.landing.table_paths import Layout
from penstock.ledger.book.daily_rollup import counts_by_day
from penstock.proof.evidence import (
    NO_ROWS,
    LandedUuids,
    codes,
    in_gaps,
    is_of_topic,
    of_topic,
    row_sums,
    split_offsets,
)
from penstock.proof.foreign_deletions import deleted_offsets
from penstock.proof.proofs import BackfillProof, Proof, read_proofs
from penstock.proof.reread.messages import LogRecords, RereadSource, Suspect
from penstock.proof.rows_of_batches import RowsOf, SnapshotRows, of_its_files, survivors
from penstock.proof.uuid_sums import counted, hashes
from penstock.qualified_names import is_partition, topic_of

Verify = Callable[[str, int, int], None]
"""Request to the owner of the log to check offsets [begin, end) of a topic: corrupt batches become gaps."""
OF_TABLE = (str(Name.LANDED), str(Name.QUARANTINED), str(Name.DROPPED))
"""Counts of rows that are in the table."""
NEIGHBOURHOOD_OFFSETS = 1_000_000
"""Limit: offsets before and after a batch that are searched for the deleted first event of a duplicate."""
NO_DELETIONS: Mapping[str, Runs] = MappingProxyType({})


class Prover:
    """Proves batches in order. ``topics`` is the folder of the topics; ``window`` the duplicate window in seconds.

    ``kafka``: the records of Kafka's partitions, if these are landed; ``log``: the topics without a folder;
    ``rows_of``: a source of the rows of a batch other than its files; ``deleted``: the offsets of rows deleted since;
    ``summed``: proofs carry the sums of their rows. One thread.
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
        deleted: Mapping[str, Runs] = NO_DELETIONS,
        summed: bool = False,
    ) -> None:
        self._layout, self._deleted, self._summed = layout, deleted, summed
        self._rows_of = rows_of or of_its_files(layout)
        self._log = log or LogRecords(topics, event_types)
        self._kafka = kafka
        self._verify = verify
        self._landed = LandedUuids(self._rows_of, window)
        self._window = round(window * 1_000_000)

    def remember(self, commit: Commit) -> None:
        """Add a batch that was proved before: the first event of a duplicate may be in it."""
        self._landed.remember(commit)

    def prove(self, commit: Commit, earlier: Mapping[str, Proof] | None = None) -> list[Proof]:
        """Return a proof for each topic of the batch. ``earlier``: previous proofs of this batch, by topic.

        A previous proof counts if the log has expired since and the table still agrees with it. Raises the errors of
        ``verify``; then nothing is decided, and the caller retries.
        """
        rows = self._read(commit)
        # Order: remember first, because a duplicate's survivor may be in this batch.
        self._landed.remember(commit, rows)
        ranges = commit.ranges()
        rows = without_backfilled(rows, requested(self._layout, commit))
        numbers, topics = codes(rows["topic"])
        unexpected_topics = {topics[number] for number in np.unique(numbers.to_numpy()).tolist()} - set(ranges)
        # A topic outside the commit gets an empty range, so that each of its rows is reported as unexpected.
        ranges |= dict.fromkeys(unexpected_topics, (0, 0))
        proofs = [
            self._prove_topic(
                Proof(commit.batch, topic, *ranges[topic]), of_topic(rows, topic), (earlier or {}).get(topic)
            )
            for topic in sorted(ranges)
        ]
        if self._summed:
            # Fast path: the tasks computed the sums of all rows. If a request landed some of them, the sums are
            # computed again without these.
            sums = commit.sums if commit.sums.rows == rows.num_rows else row_sums(rows)
            for proof in proofs:
                proof.sums = sums.of_topic(proof.topic)
        return proofs

    def backfills(self, commit: Commit, unproved: Mapping[str, set[int]] | None = None) -> list[BackfillProof]:
        """Return the proofs of the requests in a batch; after ``prove``.

        Offsets that were committed before count only if no proof has counted them: the ones that the request names as
        owed, or the ones in ``unproved``.
        """
        worked_on = requested(self._layout, commit)
        rows = self._read(commit) if worked_on else NO_ROWS
        return [
            self._backfill(commit, request, runs, of_topic(rows, request.topic), unproved)
            for request, runs in worked_on
        ]

    def _read(self, commit: Commit) -> pa.Table:
        """Return the rows of a batch, with their hashes if the sums of a part of them are needed."""
        # Fast path: the tasks summed the rows of batches without requests.
        if self._summed and commit.backfills() and commit.sums and commit.sums.are_hashed:
            return of_its_files(self._layout, hashed=True)(commit)
        return self._rows_of(commit)

    def _backfill(
        self,
        commit: Commit,
        request: Request,
        runs: Sequence[OffsetRange],
        rows: pa.Table,
        unproved: Mapping[str, set[int]] | None,
    ) -> BackfillProof:
        rows = rows.filter(pa.array(is_inside(rows["offset"].to_numpy(), runs)))
        proof = Proof(commit.batch, request.topic, runs[0][0], runs[-1][1])
        owed = set(request.owed) if unproved is None else unproved.get(request.topic, set())
        # Of a request for lost offsets, rows that an earlier proof counted must not be counted again.
        counted_rows = rows.filter(pa.array(np.isin(rows["offset"].to_numpy(), list(owed)))) if request.lost else rows
        proof.count_rows(counted_rows)
        if self._summed:
            proof.sums = row_sums(counted_rows)
        landed = runs_of(np.unique(rows["offset"].to_numpy()))
        missing, deleted = self._without_deleted(proof.topic, difference(as_runs(runs), landed))
        if len(missing):
            self._explain(proof, missing, None, deleted)
        return BackfillProof(request.number, proof, () if request.lost else tuple(runs), rows.num_rows)

    def _prove_topic(self, proof: Proof, rows: pa.Table, earlier: Proof | None) -> Proof:
        # Fast path: most batches have a row for each offset, and need neither the log nor Kafka.
        missing, unexpected = split_offsets(rows["offset"].to_numpy(), proof.begin, proof.end)
        proof.unexpected = unexpected.tolist()
        for request in requests_for_topic(self._layout, proof.topic, lost=False):
            # Invariant: an offset that a request landed ahead of its turn is counted with the request, never here.
            missing = difference(missing, request.runs)
        proof.count_rows(rows)
        missing, deleted = self._without_deleted(proof.topic, missing)
        if len(missing):
            self._explain(proof, missing, earlier, deleted)
        return proof

    def _without_deleted(self, topic: str, missing: Runs) -> tuple[Runs, int]:
        """Return the missing offsets whose rows were not deleted, and the number of deleted ones."""
        remaining = difference(missing, self._deleted.get(topic, NO_RUNS))
        return remaining, count_offsets(missing) - count_offsets(remaining)

    def _explain(self, proof: Proof, missing: Runs, earlier: Proof | None, deleted: int = 0) -> None:
        """Find a reason for each offset that is not in the table."""
        records = self._records(proof.topic)
        reread = records.read_again(proof.topic, in_gaps(missing, records.gaps(proof.topic))[0])
        for begin, end in reread.corrupt if self._verify else ():
            # Order: the owner of the log enters the gap, then the gaps are read again below. A reader must not write
            # to the log.
            self._verify(proof.topic, begin, end)  # type: ignore[misc]
        unexplained, gap_counts = in_gaps(missing, [*records.gaps(proof.topic), *reread.absent])
        agrees = earlier is not None and _agrees(proof, earlier, count_offsets(missing), deleted)
        # The log has expired since the first proof. Its rows cannot be read again, so the first proof counts.
        if earlier and agrees and gap_counts:
            _take_over(proof, earlier)
            return
        for origin, reasons in gap_counts.items():
            for reason, count in reasons.items():
                proof.add(origin, fate_of_gap(reason), count)
        for origin in reread.segments.values():
            proof.add(origin, Name.SEGMENT)
        self._enter_duplicates(
            proof, difference(unexplained, [(time, time + 1) for time in reread.segments]), reread.suspects
        )
        # The same, for the deleted row that a duplicate repeats.
        if earlier and agrees and len(proof.unaccounted) > len(earlier.unaccounted) and self._lacks_survivors(proof):
            _take_over(proof, earlier)

    def _records(self, topic: str) -> RereadSource:
        return self._kafka if is_partition(topic) and self._kafka is not None else self._log

    def _enter_duplicates(self, proof: Proof, unexplained: Runs, suspects: Sequence[Suspect]) -> None:
        wanted_uuids: dict[str, list[int]] = {}
        for suspect in suspects:
            if suspect.event:
                wanted_uuids.setdefault(suspect.event.uuid, []).append(suspect.micros)
        # Duplicates are looked for in all partitions: a repeated message may have another key, and so another
        # partition.
        topic = topic_of(proof.topic)
        landed = self._landed.find_landed({topic: wanted_uuids}).get(topic, {})
        without_survivor = {
            uuid: self._without_survivor(times, landed.get(uuid, ())) for uuid, times in wanted_uuids.items()
        }
        # The recent batches in memory have nearly all survivors; the table is searched after a restart, for older
        # ones.
        if any(without_survivor.values()):
            for uuid, times in survivors(self._layout, topic, without_survivor, self._window).items():
                landed[uuid] = [*landed.get(uuid, ()), *times]
            for uuid, times in self._deleted_survivors(proof, without_survivor).items():
                landed[uuid] = [*landed.get(uuid, ()), *times]
        duplicates = {
            s.offset: (s.origin, s.event.uuid)
            for s in suspects
            if s.event and self._landed.within(s.micros, landed.get(s.event.uuid, ()))
        }
        repeated: dict[SourceBucket, list[str]] = {}
        for offset in offsets_of(unexplained).tolist():
            if offset in duplicates:
                origin, uuid = duplicates[offset]
                repeated.setdefault(origin, []).append(uuid)
            else:
                # Neither in the table nor in a gap, and its uuid did not land within the window.
                proof.unaccounted.append(offset)
        for origin, uuids in repeated.items():
            proof.add(origin, Name.DUPLICATE, len(uuids))
            sums = counted(Name.DUPLICATE, len(uuids), int(hashes(uuids).sum()))
            proof.uuids.setdefault(origin, Counts()).absorb(sums)

    def _deleted_survivors(self, proof: Proof, wanted_uuids: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """Return when events landed whose rows were deleted since, as the log still has them."""
        landed_at: dict[str, list[int]] = {}
        for name, neighbours in self._deleted_neighbours(proof):
            for suspect in self._records(name).read_again(name, neighbours).suspects:
                if suspect.event and wanted_uuids.get(suspect.event.uuid):
                    landed_at.setdefault(suspect.event.uuid, []).append(suspect.micros)
        return landed_at

    def _lacks_survivors(self, proof: Proof) -> bool:
        """Report whether the log has lost deleted rows near a range, of which the range may have duplicates."""
        return any(
            in_gaps(neighbours, self._records(name).gaps(name))[1]
            for name, neighbours in self._deleted_neighbours(proof)
        )

    def _deleted_neighbours(self, proof: Proof) -> Iterator[tuple[str, Runs]]:
        """Yield the offsets of deleted rows near a range, by topic or partition."""
        window = as_runs([(proof.begin - NEIGHBOURHOOD_OFFSETS, proof.end + NEIGHBOURHOOD_OFFSETS)])
        for name, runs in deleted_offsets(self._layout).items():
            neighbours = intersection(runs, window)
            # A repeated message may be in another partition, with about the same offset.
            if topic_of(name) == topic_of(proof.topic) and len(neighbours):
                yield name, neighbours

    def _without_survivor(self, times: Sequence[int], landed: Sequence[int]) -> list[int]:
        return [time for time in times if not self._landed.within(time, landed)]


def _take_over(proof: Proof, earlier: Proof) -> None:
    """Count the offsets without a row as an earlier proof did."""
    proof.counts_by, proof.unaccounted = _earlier_counts(proof, earlier), earlier.unaccounted
    proof.uuids = {origin: _join_uuids(origin, proof, earlier) for origin in {*proof.uuids, *earlier.uuids}}


def _join_uuids(origin: SourceBucket, proof: Proof, earlier: Proof) -> Counts:
    """Return the uuids of the table today, and of the duplicates as read before they expired."""
    now, before = proof.uuids.get(origin, Counts()), earlier.uuids.get(origin, Counts())
    in_table = {n: c for n, c in now.items() if f".{Name.LANDED}" in n}
    return Counts({**{n: c for n, c in before.items() if f".{Name.LANDED}" not in n}, **in_table})


def _agrees(proof: Proof, earlier: Proof, missing: int, deleted: int) -> bool:
    """Report whether the table has the rows that it had at an earlier proof of this range, except deleted ones."""
    now, before = (_by_day(_of_table(counted_proof.counts_by)) for counted_proof in (proof, earlier))
    same_rows = now == before if not deleted else all(now[p][n] <= before[p][n] for p in now for n in now[p])
    total = earlier.total() + len(earlier.unaccounted)
    same_range = (proof.begin, proof.end) == (earlier.begin, earlier.end)
    return same_range and same_rows and total == proof.total() + missing + deleted


def _earlier_counts(proof: Proof, earlier: Proof) -> dict[SourceBucket, Counts]:
    """Return today's counts of the table, and the earlier proof's counts of offsets that were never in it."""
    counts_by_place = {origin: Counts(counts) for origin, counts in _of_table(proof.counts_by).items()}
    for origin, counts in earlier.counts_by.items():
        not_in_table = Counts({name: n for name, n in counts.items() if not name.startswith(OF_TABLE)})
        if not_in_table:
            counts_by_place.setdefault(origin, Counts()).absorb(not_in_table)
    return counts_by_place


def _of_table(counts_by: Mapping[SourceBucket, Counts]) -> dict[SourceBucket, Counts]:
    in_table = {p: Counts({n: c for n, c in by.items() if n.startswith(OF_TABLE)}) for p, by in counts_by.items()}
    return {origin: counts for origin, counts in in_table.items() if counts}


def _by_day(counts_by: Mapping[SourceBucket, Counts]) -> defaultdict[SourceBucket, Counts]:
    """Sum counts by day, the form of old proofs."""
    return defaultdict(Counts, counts_by_day(counts_by))


def requested(layout: Layout, commit: Commit) -> list[tuple[Request, list[OffsetRange]]]:
    """Return the requests that a batch worked on, each with its offsets in the batch."""
    spans = commit.backfills()
    by_name = load_requests(layout.backfills) if spans else {}
    return [(by_name[name], by_name[name].part(*span)) for name, span in spans.items() if name in by_name]


def without_backfilled(rows: pa.Table, worked_on: Sequence[tuple[Request, Sequence[OffsetRange]]]) -> pa.Table:
    """Return the rows that landed in their topic's own turn."""
    for request, runs in worked_on:
        of_request_topic = is_of_topic(rows, request.topic).to_numpy()
        rows = rows.filter(pa.array(~(of_request_topic.astype(bool) & is_inside(rows["offset"].to_numpy(), runs))))
    return rows


def rebuild(
    topics: Path,
    layout: Layout,
    *,
    window: float = 600.0,
    event_types: Sequence[str] = (),
    kafka: RereadSource | None = None,
) -> Iterator[Proof | BackfillProof]:
    """Prove all batches again from the table and the log; earlier proofs count only for expired offsets."""
    # Earlier proofs are the only evidence for offsets that expired from the log.
    written = {proofs[0].batch: {p.topic: p for p in proofs} for proofs in read_proofs(layout) if proofs}
    rows_of, deleted = SnapshotRows(layout), deleted_offsets(layout)
    prover = Prover(
        topics, layout, window=window, event_types=event_types, kafka=kafka, rows_of=rows_of, deleted=deleted
    )
    unproved: dict[str, set[int]] = {}
    for commit in read_journal(layout):
        for proof in prover.prove(commit, written.get(commit.batch)):
            unproved.setdefault(proof.topic, set()).update(proof.unaccounted)
            yield proof
        for backfill in prover.backfills(commit, unproved):
            # These offsets are counted now, so a later request for them counts nothing.
            unproved.get(backfill.proof.topic, set()).difference_update(range(backfill.proof.begin, backfill.proof.end))
            yield backfill

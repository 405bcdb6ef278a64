"""Rollup of proved and posted batches into stretches, so that journal and proofs do not grow.

Order: each day's file is replaced, then the sum, then lines are dropped. Crash: at each point a batch is in its line
or in a stretch for each reader, and the rollup can be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.counts import Counts
from penstock.files.checked_lines import encode_line, read_lines
from penstock.files.file_system import OS, FileSystem, replace_durably
from penstock.landing.history import SUFFIX, Stretch, days, read_day, read_sum, write_day, write_sum
from penstock.landing.journal import Commit
from penstock.landing.row_sums import RowSums
from penstock.landing.table_paths import Layout
from penstock.ledger.book.daily_rollup import counts_by_day
from penstock.proof.proofs import Proof, ProvedBatch

ROLL_AT = 1000
"""Limit: a journal with this many lines is rolled up."""
KEEP = 500
"""Lines that stay: the survivors of duplicates are looked for in their batches' files first, and Spark's own list is of
the last hundred."""
MOST_OFFSETS = 4_000_000
"""Limit: offsets of a stretch, because a rebuild holds the rows of one stretch in memory."""
MINUTES_FOR = timedelta(days=32)
"""Age from which the counts of a day are kept by day instead of by minute."""


def roll_up(layout: Layout, through: int, now: Callable[[], float | None], fs: FileSystem = OS) -> int:
    """Roll up the batches up to ``through``, which are proved and posted; return their number.

    Only the process that lands may call it. ``now`` returns None while the clock is not believed: then the minutes of
    old days stay.
    """
    before = read_sum(layout)
    added = [stretch for stretch in _single(layout) if before.batch < stretch.batch <= through]
    new_day = False
    for day, of_day in _by_day(added).items():
        path = layout.history / f"{day}{SUFFIX}"
        existing = read_day(path)
        new_day |= not existing
        # Crash: a rollup that was killed after this file may have entered these stretches already.
        last = max((stretch.batch for stretch in existing), default=-1)
        write_day(path, joined([*existing, *(stretch for stretch in of_day if stretch.batch > last)]), fs)
    if added:
        # Order: the sum after the days' files. A reader that sees the new sum finds its batches there.
        write_sum(layout, before.plus(added), fs)
    # Order: lines are dropped last. Until then a batch may be in a line and in a stretch, and readers skip the line.
    for journal in (layout.journal, layout.proofs):
        _drop_lines(journal, through, fs)
    # Once a day is enough, and an implausible clock would sum the minutes of recent days forever.
    if new_day and (time_s := now()) is not None:
        _without_minutes(layout, datetime.fromtimestamp(time_s, UTC).date() - MINUTES_FOR, fs)
    return len(added)


def _single(layout: Layout) -> list[Stretch]:
    """Return each batch in journal and proofs as a stretch."""
    proofs = {proved.batch: proved for proved in read_lines(layout.proofs, ProvedBatch.from_document)}
    batches: list[Stretch] = []
    for line in read_lines(layout.journal, dict):
        commit = Commit.from_document(line)
        # The line of a moved topic has the number of the batch before it, and belongs to it.
        if line.get("moved") and batches:
            batches[-1] = replace(batches[-1], end={**batches[-1].end, **commit.end})
        else:
            batches.append(_stretch([commit], proofs.get(commit.batch, ProvedBatch(commit.batch, [], []))))
    return batches


def _stretch(commits: Sequence[Commit], proved: ProvedBatch, totals: Mapping[str, int] | None = None) -> Stretch:
    """Return the stretch of consecutive commits."""
    first, last = commits[0], commits[-1]
    end: dict[str, int] = {}
    begin: dict[str, int] = {}
    for commit in commits:
        begin |= {name: span[0] for name, span in commit.spans().items() if name not in begin}
        end |= commit.end
    number = first.batch if first.first is None else first.first
    ends = {name: end[name] for name in begin}
    summed = replace(last, begin=begin, end=ends, files=(), first=number, sums=RowSums(), violations=Counter())
    return Stretch(
        number,
        last.batch,
        last.landed_at,
        end,
        {**proved.totals(), **last.violations} if totals is None else totals,
        summed.document(),
        tuple(proof.document() for proof in proved.proofs),
        tuple(backfill.document() for backfill in proved.backfills),
    )


def _by_day(stretches: Iterable[Stretch]) -> dict[str, list[Stretch]]:
    by_day: dict[str, list[Stretch]] = {}
    for stretch in stretches:
        day = datetime.fromtimestamp(stretch.landed_at / 1000, UTC).date().isoformat()
        by_day.setdefault(day, []).append(stretch)
    return by_day


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Join consecutive stretches into fewer, longer ones."""
    groups: list[_Group] = []
    for stretch in stretches:
        if not groups or not groups[-1].takes(stretch):
            groups.append(_Group())
        groups[-1].add(stretch)
    return [group.stretch() for group in groups]


class _Group:
    """Consecutive stretches that become one."""

    def __init__(self) -> None:
        self._members: list[Stretch] = []
        self._ends: dict[str, int] = {}
        self._offsets = 0
        self._alone = False

    def takes(self, stretch: Stretch) -> bool:
        """Report whether a stretch continues this group: all proved, in its topics' own turn, within the size limit."""
        ranges = Commit.from_document(stretch.commit).spans()
        follows = all(self._ends.get(name, begin) == begin for name, (begin, _) in ranges.items())
        offsets = sum(end - begin for begin, end in ranges.values())
        # A rebuild proves a stretch as one range, so it must be contiguous in each topic.
        return follows and not (self._alone or _must_stay_single(stretch)) and self._offsets + offsets <= MOST_OFFSETS

    def add(self, stretch: Stretch) -> None:
        self._members.append(stretch)
        self._alone = _must_stay_single(stretch)
        for name, (begin, end) in Commit.from_document(stretch.commit).spans().items():
            self._ends[name] = end
            self._offsets += end - begin

    def stretch(self) -> Stretch:
        if len(self._members) == 1:
            return self._members[0]
        batch, totals = self._members[-1].batch, Counts()
        proofs: dict[str, Proof] = {}
        for member in self._members:
            totals.absorb(member.totals)
            for proof in map(Proof.from_document, member.proofs):
                if proof.topic in proofs:
                    proofs[proof.topic].absorb(proof)
                else:
                    proofs[proof.topic] = proof
        for proof in proofs.values():
            proof.batch = batch
        total = _stretch(
            [Commit.from_document(member.commit) for member in self._members],
            ProvedBatch(batch, list(proofs.values()), []),
            totals,
        )
        end = {name: offset for member in self._members for name, offset in member.end.items()}
        return replace(total, end=end)


def _must_stay_single(stretch: Stretch) -> bool:
    """Report whether a stretch has unproved offsets, or some that landed out of turn."""
    spans = Commit.from_document(stretch.commit).spans()
    proved = {str(proof["topic"]): (proof["begin"], proof["end"]) for proof in stretch.proofs}
    return bool(stretch.refills) or any(proved.get(name) != span for name, span in spans.items())


def _drop_lines(path: Path, through: int, fs: FileSystem) -> None:
    """Drop the lines of batches up to ``through``."""
    lines: list[dict[str, Any]] = list(read_lines(path, dict))
    remaining = [line for line in lines if int(line["batch"]) > through]
    if len(remaining) < len(lines):
        replace_durably(fs, path, b"".join(map(encode_line, remaining)))


def _without_minutes(layout: Layout, before: date, fs: FileSystem) -> None:
    """Sum the counts of days before ``before`` by day."""
    for name in days(layout):
        if name.removesuffix(SUFFIX) < before.isoformat():
            path = layout.history / name
            minutes = read_day(path)
            summed = [replace(stretch, proofs=tuple(map(_sum_by_day, stretch.proofs))) for stretch in minutes]
            if summed != minutes:
                write_day(path, summed, fs)


def _sum_by_day(document: Mapping[str, Any]) -> Mapping[str, Any]:
    proof = Proof.from_document(document)
    proof.counts_by, proof.uuids = counts_by_day(proof.counts_by), counts_by_day(proof.uuids)
    return proof.document()

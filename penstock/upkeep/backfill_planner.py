"""Landing a stretch of a topic that the tables do not have: of topics the pipeline does not read, and what was lost.

Nothing lands twice: what is in the table, in a gap, a duplicate or waiting for the pipeline's own turn is left out.
The rest becomes a request (``penstock.landing.requests.backfill_requests``); the landing query executes it exactly
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Name
from penstock.errors import PenstockError
from penstock.landing.event_rules import WITH_UUID, MessageKind
from penstock.landing.journal import committed_batches, landed_ends, read_plan
from penstock.landing.landing_lock import hold_lock
from penstock.landing.offset_runs import NO_RUNS, Offsets, count_offsets, is_inside, offsets_of, runs_of
from penstock.landing.requests.backfill_requests import Request, passed_offsets, requests_for_topic, write_request
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.log.read.topic_reader import TopicReader
from penstock.proof.evidence import in_gaps
from penstock.proof.proofs import proved_refills, read_proofs
from penstock.proof.reread import LogRecords, Reread, Suspect

WAITING = "waiting"
DELETED = Name.DELETED.rstrip(".")
CORRUPT = "corrupt"
OffsetOrTime = int | float
"""An offset (int), or a time in seconds since the epoch (float)."""


class CannotBackfill(PenstockError, RuntimeError):
    """It cannot be done now; the text says why."""


@dataclass(slots=True)
class BackfillPlan:
    """Of the offsets [begin, end) of a topic: those ``lost`` and ``ahead`` are to land, of the others ``known`` says
    how many are landed, duplicate, gap.REASON, corrupt, or waiting for the pipeline's own turn.
    """

    topic: str
    begin: int
    end: int
    known: Counter[str] = field(default_factory=Counter)
    lost: Offsets = field(default_factory=lambda: np.zeros(0, np.int64))
    ahead: Offsets = field(default_factory=lambda: np.zeros(0, np.int64))
    owed: tuple[int, ...] = ()


class BackfillPlanner:
    """Looks what of a topic is not in the table. ``selected``: the topics that the pipeline reads.

    ``running``: whether a pipeline lands meanwhile; what lies before it in its own topics is left to it.
    """

    def __init__(self, topics: Path, layout: Layout, selected: Sequence[str], *, running: bool) -> None:
        self._topics, self._layout, self._selected, self._running = topics, layout, set(selected), running
        self._committed, self._planned = positions(layout)
        self._runs = NO_RUNS

    def survey(self, topic: str, begin: OffsetOrTime, end: OffsetOrTime | None) -> BackfillPlan:
        """Raises CannotBackfill where there is no such topic."""
        reader = TopicReader(self._topics / topic)
        try:
            first, last = _offset(reader, begin), reader.end if end is None else _offset(reader, end)
        except FileNotFoundError:
            raise CannotBackfill(f"there is no topic {topic!r}") from None
        found = BackfillPlan(topic, first, max(first, min(last, reader.end)))
        left = np.arange(found.begin, found.end)
        left = self._strike(found, Name.LANDED.rstrip("."), left, np.isin(left, self._in_table(found)))
        self._runs = DeletionRecord(self._layout).runs().get(topic, NO_RUNS)
        left = self._strike(found, DELETED, left, is_inside(left, self._runs))
        runs, gone = in_gaps(runs_of(left), reader.gaps())
        for reasons in gone.values():
            found.known.update({f"{Name.GAP}{reason}": count for reason, count in reasons.items()})
        assert len(left) - count_offsets(runs) == sum(sum(reasons.values()) for reasons in gone.values())
        self._divide(found, offsets_of(runs))
        return found

    def _divide(self, found: BackfillPlan, left: Offsets) -> None:
        """What is left: committed before, on its way, or never read."""
        asked = requests_for_topic(self._layout, found.topic)
        done = [run for one in asked for run in one.part(0, passed_offsets(self._committed, one))]
        here, planned = self._committed.get(found.topic, 0), self._planned.get(found.topic, 0)
        committed = is_inside(left, done) | (left < here)
        for one in asked:  # a request to land something again is for what is committed already
            committed &= ~is_inside(left, one.part(passed_offsets(self._committed, one), one.rows))
        on_its_way = is_inside(left, [run for one in asked for run in one.runs]) | (left < planned)
        if self._running and found.topic in self._selected:
            on_its_way |= left >= planned
        found.ahead = left[~committed & ~on_its_way]
        found.known[WAITING] += int((~committed & on_its_way).sum())
        if committed.any():
            self._lost(found, left[committed])

    def _lost(self, found: BackfillPlan, missing: Offsets) -> None:
        """Of what was committed and is in no file: what is no duplicate of a row in the table."""
        again = LogRecords(self._topics).read_again(found.topic, runs_of(missing))
        uuids = {suspect.event.uuid for suspect in again.suspects if suspect.event}
        known = self._uuids(found.topic, uuids) | (self._uuids_deleted(found.topic) if uuids else set())
        kept = list(_first_of_each(again.suspects, known))
        found.lost = np.array(kept, np.int64)
        found.known[Name.DUPLICATE] += len(again.suspects) - len(kept)
        found.known[CORRUPT] += len(missing) - len(again.suspects)
        owed = {
            o for proofs in read_proofs(self._layout) for p in proofs if p.topic == found.topic for o in p.unaccounted
        }
        owed -= {offset for one in requests_for_topic(self._layout, found.topic) for offset in one.owed}
        found.owed = tuple(sorted(owed & set(kept)))

    def _strike(
        self, found: BackfillPlan, name: str, left: Offsets, struck: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> Offsets:
        found.known[name] += int(struck.sum())
        return left[~struck]

    def _in_table(self, found: BackfillPlan) -> Offsets:
        parts = [np.zeros(0, np.int64)]
        for rows in self._columns(found.topic, ["offset"]):
            offsets = rows["offset"].to_numpy()
            parts.append(offsets[(offsets >= found.begin) & (offsets < found.end)])
        return np.concatenate(parts)

    def _uuids(self, topic: str, wanted: set[str]) -> set[str]:
        """Those that are in the table."""
        values = pa.array(list(wanted), pa.string())
        found: set[str] = set()
        for rows in self._columns(topic, ["uuid"], WITH_UUID) if wanted else ():
            here = rows["uuid"].filter(pc.is_in(rows["uuid"], value_set=values))
            found.update(here.to_pylist())  # type: ignore[arg-type]  # what is among the wanted is not null
        return found

    def _uuids_deleted(self, topic: str) -> set[str]:
        """Those that were taken out of the table, as far as the log still has them: they do not come back."""
        again = LogRecords(self._topics).read_again(topic, self._runs) if len(self._runs) else Reread()
        return {suspect.event.uuid for suspect in again.suspects if suspect.event}

    def _columns(self, topic: str, names: list[str], kinds: Sequence[str] = tuple(MessageKind)) -> Iterator[pa.Table]:
        """Columns of the rows of a topic of the log, file by file; a file that is gone has none."""
        for name in table_of(self._layout).active():
            if partition_value(name, "kind") not in kinds:
                continue
            try:
                with open_rows(self._layout.landed, name) as file:
                    known = set(file.columns)
                    rows = file.read([c for c in (*names, "topic", "partition") if c in known])
            except FileNotFoundError:
                continue
            mine = pc.equal(rows["topic"], pa.scalar(topic))
            if "partition" in known:
                mine = pc.and_(mine, pc.is_null(rows["partition"]))
            yield rows.filter(mine)


def _first_of_each(suspects: Sequence[Suspect], landed: set[str]) -> Iterator[int]:
    """The offsets of the suspects that are no duplicates of what has landed, or of each other."""
    seen = set(landed)
    for suspect in suspects:
        if suspect.event is None or suspect.event.uuid not in seen:
            seen |= {suspect.event.uuid} if suspect.event else set()
            yield suspect.offset


def _offset(reader: TopicReader, place: OffsetOrTime) -> int:
    return place if isinstance(place, int) else reader.at_timestamp(round(place * 1_000_000))


def positions(layout: Layout) -> tuple[dict[str, int], dict[str, int]]:
    """Up to where each topic (and request) is committed, and up to where it is planned."""
    committed = landed_ends(layout)
    done = max(committed_batches(layout.checkpoint), default=-1)
    planned = dict(committed)
    for batch in (done, done + 1):
        try:
            planned.update(read_plan(layout.checkpoint, batch).end)
        except FileNotFoundError:
            continue
    return committed, planned


def ask(layout: Layout, found: BackfillPlan) -> list[Request]:
    """Keep requests for what a survey found."""
    requests = []
    if len(found.lost):
        requests.append(write_request(layout.refills, found.topic, runs_of(found.lost), lost=True, owed=found.owed))
    if len(found.ahead):
        requests.append(write_request(layout.refills, found.topic, runs_of(found.ahead)))
    return requests


def is_done(layout: Layout, asked: Sequence[Request]) -> bool:
    """Whether all of the requests were carried out and proved."""
    proved: Counter[int] = Counter()
    for refill in proved_refills(layout):
        proved[refill.number] += 1
    committed, _ = positions(layout)
    return all(passed_offsets(committed, one) >= one.rows and proved[one.number] for one in asked)


def outcome(layout: Layout, asked: Sequence[Request]) -> Counter[str]:
    """What became of the offsets of requests: rows, duplicates, gaps, unaccounted."""
    numbers = {one.number for one in asked}
    total: Counter[str] = Counter()
    for refill in proved_refills(layout):
        if refill.number in numbers:
            total["rows"] += refill.rows
            total["unaccounted"] += len(refill.proof.unaccounted)
            for name in (Name.DUPLICATE, Name.GAP):
                total[name.rstrip(".")] += refill.proof.total(name)
    return total


@contextmanager
def one_at_a_time(layout: Layout) -> Iterator[None]:
    """Raises CannotBackfill while another one is at it."""
    with hold_lock(layout.refills / "lock", CannotBackfill(f"another backfill is at work on {layout.tables}")):
        yield

"""Plan the landing of offsets that the tables lack: of topics the pipeline does not read, and of lost rows.

Invariant: nothing lands twice. Offsets that are in the table, in a gap, duplicates, or waiting for the pipeline's own
turn are left out. The rest becomes a request (``penstock.landing.requests.backfill_requests``), which the landing
query executes exactly once.
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
from penstock.landing.journal import landed_ends
from penstock.landing.landing_lock import hold_lock
from penstock.landing.offset_runs import NO_RUNS, Offsets, count_offsets, is_inside, offsets_of, runs_of
from penstock.landing.requests.backfill_requests import Request, passed_offsets, requests_for_topic, write_request
from penstock.landing.spark_checkpoint import newest_commit, read_plan
from penstock.landing.table.landed_table import table_of
from penstock.landing.table.table_file import open_rows
from penstock.landing.table_paths import Layout, partition_value
from penstock.log.read.topic_reader import TopicReader
from penstock.proof.evidence import in_gaps
from penstock.proof.foreign_deletions import deleted_offsets
from penstock.proof.proofs import proved_backfills, read_proofs
from penstock.proof.reread.messages import LogRecords, Reread, Suspect

WAITING = "waiting"
DELETED = Name.DELETED.rstrip(".")
CORRUPT = "corrupt"
OffsetOrTime = int | float
"""An offset (int), or a time in seconds since the epoch (float)."""


class CannotBackfill(PenstockError, RuntimeError):
    """A backfill is not possible now; the text names the reason."""


@dataclass(slots=True)
class BackfillPlan:
    """The fates of the offsets [begin, end) of a topic.

    ``lost`` (committed, but missing from the table) and ``ahead`` (never read) are to land. ``fates`` counts the other
    offsets: landed, duplicate, gap.REASON, corrupt, deleted, or waiting for the pipeline's own turn. ``owed`` are the
    lost offsets without a counting proof.
    """

    topic: str
    begin: int
    end: int
    fates: Counter[str] = field(default_factory=Counter)
    lost: Offsets = field(default_factory=lambda: np.zeros(0, np.int64))
    ahead: Offsets = field(default_factory=lambda: np.zeros(0, np.int64))
    owed: tuple[int, ...] = ()

    @property
    def missing(self) -> int:
        """The number of offsets that are to land."""
        return len(self.lost) + len(self.ahead)


class BackfillPlanner:
    """The search for offsets of topics that are not in the table. ``selected`` are the topics the pipeline reads.

    ``running`` is whether a pipeline lands at the same time; offsets ahead of it in its own topics are left to it.
    """

    def __init__(
        self, topics: Path, layout: Layout, selected: Sequence[str], *, running: bool, without: str = ""
    ) -> None:
        """``without``: a damaged file, which counts as gone."""
        self._without = without
        self._topics, self._layout, self._selected, self._running = topics, layout, set(selected), running
        self._committed, self._planned = load_positions(layout)
        self._runs = NO_RUNS

    def survey(self, topic: str, begin: OffsetOrTime, end: OffsetOrTime | None) -> BackfillPlan:
        """Plan the offsets from ``begin`` to ``end``. Raises CannotBackfill without such a topic."""
        reader = TopicReader(self._topics / topic)
        try:
            first, last = _to_offset(reader, begin), reader.end if end is None else _to_offset(reader, end)
        except FileNotFoundError:
            raise CannotBackfill(f"no topic {topic!r}") from None
        plan = BackfillPlan(topic, first, max(first, min(last, reader.end)))
        remaining = np.arange(plan.begin, plan.end)
        remaining = self._remove_counted(
            plan, Name.LANDED.rstrip("."), remaining, np.isin(remaining, self._load_landed_offsets(plan))
        )
        self._runs = deleted_offsets(self._layout).get(topic, NO_RUNS)
        remaining = self._remove_counted(plan, DELETED, remaining, is_inside(remaining, self._runs))
        runs, gaps = in_gaps(runs_of(remaining), reader.gaps())
        for reasons in gaps.values():
            plan.fates.update({f"{Name.GAP}{reason}": count for reason, count in reasons.items()})
        assert len(remaining) - count_offsets(runs) == sum(sum(reasons.values()) for reasons in gaps.values())
        self._classify_missing(plan, offsets_of(runs))
        return plan

    def _classify_missing(self, plan: BackfillPlan, remaining: Offsets) -> None:
        """Divide the remaining offsets into committed ones, planned ones, and offsets that were never read."""
        requests = requests_for_topic(self._layout, plan.topic)
        landed_runs = [run for request in requests for run in request.part(0, passed_offsets(self._committed, request))]
        committed_end, planned_end = self._committed.get(plan.topic, 0), self._planned.get(plan.topic, 0)
        is_committed = is_inside(remaining, landed_runs) | (remaining < committed_end)
        # A request for lost rows names committed offsets: the part of it that is not done is waiting, not lost.
        for request in requests:
            is_committed &= ~is_inside(remaining, request.part(passed_offsets(self._committed, request), request.rows))
        is_planned = is_inside(remaining, [run for request in requests for run in request.runs]) | (
            remaining < planned_end
        )
        if self._running and plan.topic in self._selected:
            is_planned |= remaining >= planned_end
        plan.ahead = remaining[~is_committed & ~is_planned]
        plan.fates[WAITING] += int((~is_committed & is_planned).sum())
        if is_committed.any():
            self._find_lost(plan, remaining[is_committed])

    def _find_lost(self, plan: BackfillPlan, missing: Offsets) -> None:
        """Find the committed offsets that are in no file and are not duplicates of rows in the table."""
        reread = LogRecords(self._topics).read_again(plan.topic, runs_of(missing))
        uuids = {suspect.event.uuid for suspect in reread.suspects if suspect.event}
        existing_uuids = self._find_landed_uuids(plan.topic, uuids) | (
            self._load_deleted_uuids(plan.topic) if uuids else set()
        )
        lost = list(_without_duplicates(reread.suspects, existing_uuids))
        plan.lost = np.array(lost, np.int64)
        plan.fates[Name.DUPLICATE] += len(reread.suspects) - len(lost)
        plan.fates[CORRUPT] += len(missing) - len(reread.suspects)
        owed = {
            unaccounted
            for proofs in read_proofs(self._layout)
            for proof in proofs
            if proof.topic == plan.topic
            for unaccounted in proof.unaccounted
        }
        owed -= {offset for request in requests_for_topic(self._layout, plan.topic) for offset in request.owed}
        plan.owed = tuple(sorted(owed & set(lost)))

    def _remove_counted(
        self, plan: BackfillPlan, name: str, remaining: Offsets, is_struck: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> Offsets:
        plan.fates[name] += int(is_struck.sum())
        return remaining[~is_struck]

    def _load_landed_offsets(self, plan: BackfillPlan) -> Offsets:
        parts = [np.zeros(0, np.int64)]
        for rows in self._read_columns(plan.topic, ["offset"]):
            offsets = rows["offset"].to_numpy()
            parts.append(offsets[(offsets >= plan.begin) & (offsets < plan.end)])
        return np.concatenate(parts)

    def _find_landed_uuids(self, topic: str, searched: set[str]) -> set[str]:
        """Return the searched uuids that are in the table."""
        wanted_array = pa.array(list(searched), pa.string())
        uuids: set[str] = set()
        for rows in self._read_columns(topic, ["uuid"], WITH_UUID) if searched else ():
            matches = rows["uuid"].filter(pc.is_in(rows["uuid"], value_set=wanted_array))
            uuids.update(matches.to_pylist())  # type: ignore[arg-type]  # what is among the wanted is not null
        return uuids

    def _load_deleted_uuids(self, topic: str) -> set[str]:
        # Limit: only as far back as the log still has the messages. Deleted events must not land again.
        reread = LogRecords(self._topics).read_again(topic, self._runs) if len(self._runs) else Reread()
        return {suspect.event.uuid for suspect in reread.suspects if suspect.event}

    def _read_columns(
        self, topic: str, names: list[str], kinds: Sequence[str] = tuple(MessageKind)
    ) -> Iterator[pa.Table]:
        """Yield columns of the rows of a topic of the log, file by file."""
        for name in table_of(self._layout).active():
            if name == self._without or partition_value(name, "kind") not in kinds:
                continue
            try:
                with open_rows(self._layout.landed, name) as file:
                    existing = set(file.columns)
                    rows = file.read([column for column in (*names, "topic", "partition") if column in existing])
            # Maintenance merged the file since the listing; its rows are in a file that is listed next time.
            except FileNotFoundError:
                continue
            is_of_topic = pc.equal(rows["topic"], pa.scalar(topic))
            if "partition" in existing:
                is_of_topic = pc.and_(is_of_topic, pc.is_null(rows["partition"]))
            yield rows.filter(is_of_topic)


def _without_duplicates(suspects: Sequence[Suspect], landed: set[str]) -> Iterator[int]:
    """Yield the offsets of suspects that are not duplicates of landed rows, or of each other."""
    known_uuids = set(landed)
    for suspect in suspects:
        if suspect.event is None or suspect.event.uuid not in known_uuids:
            known_uuids |= {suspect.event.uuid} if suspect.event else set()
            yield suspect.offset


def _to_offset(reader: TopicReader, offset_or_time: OffsetOrTime) -> int:
    return offset_or_time if isinstance(offset_or_time, int) else reader.at_timestamp(round(offset_or_time * 1_000_000))


def load_positions(layout: Layout) -> tuple[dict[str, int], dict[str, int]]:
    """Return the ends of the committed and of the planned offsets, by topic and request."""
    committed = landed_ends(layout)
    last_batch = newest_commit(layout.checkpoint)
    planned = dict(committed)
    # Spark plans one batch ahead: its offsets are on their way although nothing is committed.
    for batch in (last_batch, last_batch + 1):
        try:
            planned.update(read_plan(layout.checkpoint, batch).end)
        except FileNotFoundError:
            continue
    return committed, planned


def request_backfill(layout: Layout, plan: BackfillPlan) -> list[Request]:
    """Write requests for the plan of a survey."""
    requests = []
    if len(plan.lost):
        requests.append(write_request(layout.backfills, plan.topic, runs_of(plan.lost), lost=True, owed=plan.owed))
    if len(plan.ahead):
        requests.append(write_request(layout.backfills, plan.topic, runs_of(plan.ahead)))
    return requests


def are_proved(layout: Layout, requests: Sequence[Request]) -> bool:
    """Return whether all requests are landed and proved."""
    proved: Counter[int] = Counter()
    for backfill in proved_backfills(layout):
        proved[backfill.number] += 1
    committed, _ = load_positions(layout)
    return all(passed_offsets(committed, request) >= request.rows and proved[request.number] for request in requests)


def outcome(layout: Layout, requests: Sequence[Request]) -> Counter[str]:
    """Return the fates of the requested offsets: rows, duplicates, gaps, unaccounted."""
    numbers = {request.number for request in requests}
    total: Counter[str] = Counter()
    for backfill in proved_backfills(layout):
        if backfill.number in numbers:
            total["rows"] += backfill.rows
            total["unaccounted"] += len(backfill.proof.unaccounted)
            for name in (Name.DUPLICATE, Name.GAP):
                total[name.rstrip(".")] += backfill.proof.total(name)
    return total


@contextmanager
def hold_backfill_lock(layout: Layout) -> Iterator[None]:
    """Hold the lock of backfills. Raises CannotBackfill if another one runs."""
    with hold_lock(layout.backfills / "lock", CannotBackfill(f"another backfill of {layout.tables} is running")):
        yield

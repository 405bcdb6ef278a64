"""The progress of the pipeline, read from its files: without Spark, and for topics in a folder without a daemon."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.counts import Counts
from penstock.handover.landing_failure import read_landing_failure
from penstock.kafka.errors import KafkaAway
from penstock.landing.damaged_files import damaged_files
from penstock.landing.history import TOTALS
from penstock.landing.journal import Commit, latest
from penstock.landing.landing_lock import is_running, landing_process
from penstock.landing.spark_checkpoint import planned_batches
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.process.kernel import has_stopped
from penstock.proof.proofs import latest_proofs

RATE_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """The end of a topic, the offsets up to which it has landed and is proved, and its backlog.

    ``lag``: seconds that the oldest row of the backlog has been in the log; 0 without a backlog.
    """

    topic: str
    end: int
    landed: int
    proved: int
    lag_rows: int
    lag: float


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the pipeline. ``last_batch`` is -1 and ``last_batch_age`` (seconds) None before the first batch.

    ``rate``: landed rows per second, over the last minute. ``rows`` to ``unaccounted`` are sums over all proved
    batches. ``problem`` is empty, or says that the pipeline cannot continue, that Kafka does not answer (``topics`` is
    empty then), or that selected topics are missing in Kafka.
    """

    running: bool
    last_batch: int
    last_batch_age: float | None
    rate: float
    rows: int
    quarantined: int
    duplicates: int
    unaccounted: int
    damaged_files: int
    topics: list[TopicStatus]
    problem: str = ""
    stopped_pid: int = 0
    """The pipeline's process if it is stopped (SIGSTOP, a debugger), otherwise 0."""
    failure: dict[str, Any] | None = None
    """The failure for which nothing lands (``LandingFailure.document``); None if the newest attempt did not fail."""
    leaderless: tuple[str, ...] = ()
    """Partitions of Kafka that no broker leads: their ends are unknown, so ``topics`` does not have them."""

    def document(self) -> dict[str, Any]:
        """Return JSON-ready fields."""
        return asdict(self)


class View(Protocol):
    """A topic or a partition of Kafka at this moment."""

    @property
    def end(self) -> int: ...


class StatusSource(Protocol):
    """The part of a ``TopicStore`` that a status needs; partitions of Kafka have it too."""

    def views(self, patterns: Sequence[str]) -> Mapping[str, View]: ...

    def waiting_since(self, topic: str, offset: int) -> int | None:
        """Return the time (microseconds) at which the first row from ``offset`` on was stored; None if unknown."""


def status(topics: Path | StatusSource, layout: Layout, patterns: Sequence[str], now: float | None = None) -> Status:
    """Return the progress of the pipeline that lands topics matching ``patterns`` into the tables of ``layout``.

    Raises the errors of the log, such as Unavailable; without an answer of Kafka, no partition is listed.
    """
    store = FolderStore(topics) if isinstance(topics, Path) else topics
    now = time.time() if now is None else now
    rolled, commits = latest(layout)
    totals, proved = _totals(layout)
    last = commits[-1] if commits else None
    landed = dict(rolled.end)
    for commit in commits:
        landed.update(commit.end)
    problem, views, leaderless = "", dict[str, View](), ()
    try:
        views = dict(store.views(patterns))
        # Only a source of Kafka has these two.
        problem, leaderless = str(getattr(store, "problem", "")), getattr(store, "leaderless", ())
    except KafkaAway as error:
        problem = str(error)
    unknown_position = -1 if last or rolled.batch >= 0 else _newest_batch_without_position(layout)
    return Status(
        running=is_running(layout),
        last_batch=last.batch if last else unknown_position,
        last_batch_age=round(max(now - last.landed_at / 1000, 0.0), 3) if last else None,
        rate=_rate(commits, now),
        **{name: totals[name] for name in TOTALS},
        damaged_files=len(damaged_files(layout)),
        topics=[
            # What is proved has landed, also if the journal is lost.
            _topic_status(
                store, name, view.end, max(landed.get(name, 0), proved.get(name, 0)), proved.get(name, 0), now
            )
            for name, view in views.items()
        ],
        problem=_describe_lost_position(layout, unknown_position) if unknown_position >= 0 else problem,
        stopped_pid=pid if (pid := landing_process(layout)) and has_stopped(pid) else 0,
        failure=failure.document() if (failure := read_landing_failure(layout.failure)) else None,
        leaderless=leaderless,
    )


def _newest_batch_without_position(layout: Layout) -> int:
    """Return the newest batch of a table whose checkpoint and journal are both lost; -1 if one of them exists."""
    if layout.journal.exists() or planned_batches(layout.checkpoint) or not has_landed_table(layout):
        return -1
    return table_of(layout).newest()


def _describe_lost_position(layout: Layout, newest: int) -> str:
    return (
        f"cannot continue: {layout.landed} has batches up to {newest}, but {layout.checkpoint} and {layout.journal}, "
        "which say what has landed, are lost: put one of them back, or choose another folder of tables"
    )


def _totals(layout: Layout) -> tuple[Counts, dict[str, int]]:
    """Return the number of proved rows by fate, and the proved offset of each topic."""
    rolled, batches = latest_proofs(layout)
    totals, proved = Counts(rolled.totals), dict(rolled.end)
    for batch in batches:
        totals.absorb(batch.totals())
        proved.update({proof.topic: proof.end for proof in batch.proofs if proof.end})
    return totals, proved


def _rate(commits: Sequence[Commit], now: float) -> float:
    recent = [commit for commit in commits if commit.landed_at / 1000 > now - RATE_WINDOW_S]
    rows = sum(end - begin for commit in recent for begin, end in commit.ranges().values())
    return round(rows / RATE_WINDOW_S, 1)


def _topic_status(store: StatusSource, topic: str, end: int, landed: int, proved: int, now: float) -> TopicStatus:
    first = store.waiting_since(topic, landed) if landed < end else None
    lag = max(now - first / 1e6, 0.0) if first is not None else 0.0
    return TopicStatus(topic, end, landed, proved, end - landed, round(lag, 3))

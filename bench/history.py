"""What triggers, status, a start and the balance take after a thousand batches, and after a hundred thousand.

The batches are made up: one a second, of two topics, with all that is kept of them: journal and proofs as they are
rolled up, the removed files that Delta's checkpoint lists, the ledger's posts. So it takes a minute, and not a day.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake

from bench.timing import fastest
from penstock.counts import Counts, Origin
from penstock.files.checked_lines import append_lines
from penstock.landing.journal import Commit
from penstock.landing.table.delta_table import KEEP_HOURS
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table.table_reader import DELTA_LOG
from penstock.landing.table_paths import Layout
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import LandedPost, dump
from penstock.log import Log
from penstock.proof.proofs import Proof
from penstock.proof.rollup import KEEP, ROLL_AT, roll_up
from penstock.proof.status import status
from penstock.records import body
from penstock.spark.query.landing_query import Landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.upkeep.repair.checkpoint_repair import repair_checkpoint, sweep

FEW, MANY = 1_000, 100_000
TOPICS = ("events", "syslog")
ROWS = 100
"""Of a topic in a batch."""
REPEATS = 15


def measure() -> dict[str, Any]:
    """Milliseconds of each, after both numbers of batches."""
    found: dict[str, Any] = {}
    for batches in (FEW, MANY):
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            made = History(Path(folder))
            made.grow(batches)
            for name, seconds in made.measured().items():
                found[f"{name}_ms_after_{batches}"] = round(seconds * 1000, 2)
            found[f"kept_bytes_after_{batches}"] = made.kept_bytes()
    return found


class History:
    """A data directory in which so many batches have landed."""

    def __init__(self, folder: Path) -> None:
        self.topics, self.buffers = folder / "topics", folder / "buffers"
        self.layout = Layout.for_tables(folder / "tables")
        self._at = time.time() - MANY
        self._batch = -1
        begin_table(self.layout)
        self.buffers.mkdir()
        log = Log(self.topics)
        for name in TOPICS:
            log.topic(name, create=True)
        log.close()

    def grow(self, batches: int) -> None:
        """Land so many batches."""
        for _ in range(0, batches, ROLL_AT - KEEP):
            self._lines(min(ROLL_AT - KEEP, batches))
            if self._batch > ROLL_AT:
                roll_up(self.layout, self._batch - KEEP, time.time)
        self._spark()
        self._delta(batches)
        self._posts(batches)

    def _lines(self, batches: int) -> None:
        commits, proofs = [], []
        for _ in range(batches):
            commit = self._next()
            commits.append(commit.document())
            told = [_proof(commit, topic).document() for topic in TOPICS]
            proofs.append({"batch": commit.batch, "proofs": told})
        append_lines(self.layout.journal, commits)
        append_lines(self.layout.proofs, proofs)

    def _next(self) -> Commit:
        self._batch += 1
        begin, end = (dict.fromkeys(TOPICS, ROWS * n) for n in (self._batch, self._batch + 1))
        files = tuple(f"kind=event/date=2026-01-01/{self._batch:032x}.parquet" for _ in TOPICS)
        return Commit(self._batch, begin, end, int((self._at + self._batch) * 1000), 0, files)

    def _spark(self) -> None:
        """What Spark's checkpoint remembers: the last hundred."""
        for folder in ("offsets", "commits"):
            (self.layout.checkpoint / folder).mkdir(parents=True)
        for batch in range(self._batch - 99, self._batch + 1):
            metadata = {"batchWatermarkMs": 0, "batchTimestampMs": int((self._at + batch) * 1000)}
            lines = ["v1", json.dumps(metadata), json.dumps(dict.fromkeys(TOPICS, ROWS * (batch + 1)))]
            (self.layout.checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
            (self.layout.checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def _delta(self, batches: int) -> None:
        """A table whose files were merged every ten minutes: its log has those that went in the last hours."""
        now, landed = round(time.time() * 1000), Path(str(self.layout.landed))
        gone = min(batches, KEEP_HOURS * 3600)
        day, size = {"kind": "event", "date": "2026-01-01"}, 10_000
        file = {"partitionValues": day, "size": size, "dataChange": False}
        removed = [
            {"remove": {"path": f"kind=event/date=2026-01-01/{n:032x}.parquet", "deletionTimestamp": now} | file}
            for n in range(gone)
        ]
        name = "kind=event/date=2026-01-01/merged.parquet"
        (landed / name).parent.mkdir(parents=True)
        (landed / name).write_bytes(bytes(size))
        added = {"add": {"path": name, "modificationTime": now, "stats": "{}"} | file}
        transaction = {"txn": {"appId": "penstock", "version": self._batch, "lastUpdated": now}}
        text = "\n".join(json.dumps(one) for one in [*removed, added, transaction])
        (landed / DELTA_LOG / f"{1:020}.json").write_text(text)
        deltalake.DeltaTable(str(self.layout.landed)).create_checkpoint()
        self._batch_without_rows()

    def _batch_without_rows(self) -> None:
        table = begin_table(self.layout)
        table.commit(table.newest() + 1, [])

    def _posts(self, batches: int) -> None:
        """The ledger has been told, and has kept its checkpoint."""
        log = Log(self.topics)
        told = log.topic("_ledger", create=True, internal=True)
        for begin in range(0, batches, 1000):
            posts = [self._post(n, topic) for n in range(begin, begin + 1000) for topic in TOPICS]
            told.append(body(posts), Origin("ledger", 0, 0, 0)).result(60)
        ledger = Ledger(log, self.buffers, [])
        ledger.write_checkpoint()
        log.close()

    def _post(self, batch: int, topic: str) -> bytes:
        place = ("udp", int(self._at + batch) // 60 * 60)
        return dump(LandedPost(topic, batch, ROWS * (batch + 1), {place: Counts({"landed.event": ROWS})}))

    def measured(self) -> dict[str, float]:
        """Seconds of each, the fastest of several."""
        table = begin_table(self.layout)
        with self.running() as (worker, ledger):
            return {
                "table_open": _fastest(lambda: begin_table(self.layout).newest()),
                "commit": _fastest(lambda: table.commit(table.newest() + 1, [])),
                "proof": _fastest(worker.step),
                "status": _fastest(lambda: status(self.topics, self.layout, TOPICS)),
                "start": _fastest(self.start),
                "balance": _fastest(ledger.balance),
            }

    @contextmanager
    def running(self) -> Iterator[tuple[ProofWorker, Ledger]]:
        """A pipeline's proof worker, and the daemon's ledger."""
        log = Log(self.topics)
        ledger = Ledger(log, self.buffers, [])
        for batch in range(self._batch + 1):  # as if the log had them
            for topic in TOPICS:
                origin = Origin("udp", int(self._at + batch) // 60 * 60, 0, 0, counts={"seen": ROWS, "accepted": ROWS})
                ledger._book.enter(topic, origin, batch * ROWS, ROWS)
        yield self.start(), ledger
        log.close()

    def start(self) -> ProofWorker:
        """What a pipeline does with its files before Spark is asked to."""
        repair_checkpoint(self.layout)
        worker = ProofWorker(Landing(self.topics, self.layout.tables), None)
        worker.enter()
        sweep(self.layout)
        return worker

    def kept_bytes(self) -> int:
        """Of all that is kept of batches."""
        places = [self.layout.journal, self.layout.proofs, self.layout.rolled, *self.layout.history.glob("*")]
        return sum(path.stat().st_size for path in places if path.exists())


def _proof(commit: Commit, topic: str) -> Proof:
    place = ("udp", commit.landed_at // 60_000 * 60)
    counts = {place: Counts({"landed.event": ROWS - 1, "duplicate": 1})}
    uuids = {place: Counts({"rows.landed.event": ROWS - 1, "sum.landed.event": 1 << 60})}
    return Proof(commit.batch, topic, commit.begin[topic], commit.end[topic], counts, [], [], uuids)


def _fastest(what: Callable[[], object]) -> float:
    return fastest(what, REPEATS)

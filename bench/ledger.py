"""The ledger: what a start costs with and without a checkpoint, and its share of the log daemon's work."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.config import ListenerConfig
from penstock.counts import Counts, Origin, bucket_of
from penstock.handover.drain.drain import Drain
from penstock.ledger.book.checkpoint import FILE
from penstock.ledger.ledger import Ledger
from penstock.log import Log, StoredBatch, TopicSettings
from penstock.records import body

SIZE = 256
BATCHES = 100_000
ROUNDS, MESSAGES = 2_000, 500
"""Receive rounds as they are at the rates of ``bench ingest``: two milliseconds of 250,000 messages a second."""
LISTENER = ListenerConfig(name="bench", protocol="udp")
COUNTS = ("taken", "unboxed", "seen", "accepted")


def measure() -> dict[str, Any]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        started = _starts(Path(folder))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        return started | _share(Path(folder))


def _starts(folder: Path) -> dict[str, Any]:
    """Seconds that a ledger takes to know a log of many small batches."""
    settings = TopicSettings(durability="written")
    log = Log(folder / "topics", settings)
    topic = log.topic("bench", create=True)
    row = body([b"x" * SIZE])
    first = bucket_of(time.time()) - BATCHES // 100 * 60
    for number in range(BATCHES):
        counts = Counts(dict.fromkeys(COUNTS, 1))
        topic.append(row, Origin("bench", first + number // 100 * 60, 0, 0, counts=counts)).result()
    topic.wait_until_idle()
    keeping = _timed(Ledger(log, folder, []).write_checkpoint)
    kept = _timed(lambda: Ledger(log, folder, []))
    size = (folder / "topics" / FILE).stat().st_size
    (folder / "topics" / FILE).unlink()
    everything = _timed(lambda: Ledger(log, folder, []))
    log.close()
    return {
        "ledger_start_s_100k_batches_all_read": round(everything, 2),
        "ledger_start_s_100k_batches_checkpoint": round(kept, 3),
        "ledger_checkpoint_write_s_1000_minutes": round(keeping, 3),
        "ledger_checkpoint_bytes_1000_minutes": size,
    }


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class _Measured(Ledger):
    """A ledger that knows what CPU time its work takes on the committing threads."""

    spent = 0.0

    def _stored(self, topic: str, stored: StoredBatch) -> None:
        begin = time.thread_time()
        super()._stored(topic, stored)
        self.spent += time.thread_time() - begin


def _share(folder: Path) -> dict[str, Any]:
    """CPU time of the ledger's work, in shares of the daemon's for the same messages: those of full receive rounds."""
    from tests.ingest.ingest_life import live

    life = live(folder, LISTENER, term_length=64 << 20, drop=False)
    log = Log(folder / "topics", TopicSettings())
    ledger = _Measured(log, folder, ["bench"])
    batch = body([b"x" * SIZE] * MESSAGES)
    counts = Counts(dict.fromkeys(COUNTS, MESSAGES))
    drained = 0.0
    for _ in range(ROUNDS // 20):
        for _ in range(20):
            life.publisher.publish(batch, counts, 0)
        begin = time.process_time()
        drain = Drain("bench", folder, log, None)
        drain.stop()
        drain.run()
        drained += time.process_time() - begin
    begin = time.process_time()
    ledger.write_checkpoint()
    kept = time.process_time() - begin
    assert ledger.balance().routes[0].delivered == ROUNDS * MESSAGES
    life.end()
    log.close()
    messages = ROUNDS * MESSAGES
    return {
        "ledger_cpu_us_per_message": round(ledger.spent / messages * 1e6, 4),
        "ledger_daemon_cpu_us_per_message": round(drained / messages * 1e6, 2),
        "ledger_share_of_daemon_cpu_percent": round((ledger.spent + kept) / drained * 100, 2),
    }

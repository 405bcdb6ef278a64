"""The pipeline: events landed a second, what an idle trigger costs, how soon a row is visible."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.counts import Origin
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.log import Log, TopicSettings
from penstock.log.topic import Topic
from penstock.process.kernel import descendants
from penstock.proof.status import status
from penstock.records import body
from penstock.testing.processes import cpu

WARM_UP, EVENTS = 400_000, 1_500_000
BATCH = 10_000
TYPES = ("login", "logout", "order", "click", "error")
IDLE_SECONDS, TRIGGER = 10.0, 0.5
RATE, LATENCY_SECONDS = 1000, 20
PATIENCE = 300.0


def measure() -> dict[str, Any]:
    """All figures of the pipeline, with the default settings (two tasks, target_lag 1 s)."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        data = Path(folder) / "data"
        log = Log(data / "topics", TopicSettings(segment_size_limit=64 << 20))
        topic = log.topic("events", create=True)
        layout = Layout.for_tables(data / "tables")
        with pipeline(data) as process:
            _append(topic, _batches(0, WARM_UP))
            _proved(data, layout, topic.end)
            landing = _landing(topic, data, layout)
            idle = _idle(process)
            latency = _latency(topic, layout)
        log.close()
    return {**landing, **idle, **latency}


@contextmanager
def pipeline(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    settings = ["-o", f"data_dir={data}", "-o", "pipeline.target_lag=1s"]
    command = [sys.executable, "-m", "penstock.spark.pipeline", *settings, "--no-ledger"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _events(begin: int, count: int) -> pa.RecordBatch:
    return body(pa.array(written_events(begin, count), pa.binary()))


def written_events(begin: int, count: int) -> list[bytes]:
    """Return events of about 200 bytes; 1 % have the uuid of the one before, 0.5 % are cut off."""
    numbers = np.arange(begin, begin + count)
    rows = []
    for number in numbers.tolist():
        same = number - (number % 100 == 99)
        event = {
            "type": TYPES[number % len(TYPES)],
            "uuid": f"{same:08x}-8a5b-4f5e-9d2c-{same * 2654435761 % (1 << 48):012x}",
            "host": f"web-{number % 20}.example.net",
            "timestamp": 1_770_000_000_000 + number,
            "data": {"user": f"vip-{number % 1000}", "n": number, "path": "/catalogue/item", "ok": True},
        }
        text = json.dumps(event)
        rows.append((text[:-9] if number % 200 == 50 else text).encode())
    return rows


def _batches(begin: int, count: int) -> list[pa.RecordBatch]:
    return [_events(first, BATCH) for first in range(begin, begin + count, BATCH)]


def _append(topic: Topic, batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        now = int(time.time() * 1e6)
        topic.append(batch, Origin("bench", now // 60_000_000 * 60, now, now)).result()


def _proved(data: Path, layout: Layout, end: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = status(data / "topics", layout, ["events"])
        if found.topics[0].proved >= end:
            assert not found.unaccounted
            return
        time.sleep(0.2)
    raise AssertionError("not landed in time")


def _landing(topic: Topic, data: Path, layout: Layout) -> dict[str, Any]:
    """Rows a second from their append, which takes no more than a fifth of the time, to their proof."""
    batches = _batches(WARM_UP, EVENTS)
    began = time.perf_counter()
    _append(topic, batches)
    appended = time.perf_counter() - began
    _proved(data, layout, topic.end)
    seconds = time.perf_counter() - began
    return {"landed_and_proved_events_per_s": round(EVENTS / seconds), "landing_append_seconds": round(appended, 1)}


def _idle(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """CPU of pipeline, JVM and Python workers while nothing comes, a trigger."""
    time.sleep(2)
    before = spent(process)
    assert any(Path(f"/proc/{pid}/comm").read_text() == "java\n" for pid in before)
    time.sleep(IDLE_SECONDS)
    used = sum(seconds - before.get(pid, 0.0) for pid, seconds in spent(process).items())
    return {"idle_cpu_ms_per_trigger": round(used / (IDLE_SECONDS / TRIGGER) * 1000, 1)}


def spent(process: subprocess.Popen[bytes]) -> dict[int, float]:
    """CPU seconds of the process and of all below it, as long as they run."""
    found = {}
    for pid in [process.pid, *descendants(process.pid)]:
        with suppress(FileNotFoundError):
            found[pid] = cpu(pid)
    return found


def _latency(topic: Topic, layout: Layout) -> dict[str, Any]:
    """From an append's beginning to the row in a committed file, at RATE events a second in appends of ten."""
    listed, sent, waits = table_of(layout), dict[int, float](), list[float]()
    seen = set[str](listed.active())
    first = topic.end
    began = time.time()
    for step in range(LATENCY_SECONDS * RATE // 10):
        sent[topic.end] = time.time()
        _append(topic, [_events(10**7 + step * 10, 10)])
        if step % 5 == 0:
            waits += _arrived(layout, listed.active(), seen, sent, first)
        time.sleep(max(began + (step + 1) * 10 / RATE - time.time(), 0))
    while len(waits) < LATENCY_SECONDS * RATE * 0.98 and time.time() < began + PATIENCE:  # 1.5 % do not land
        waits += _arrived(layout, listed.active(), seen, sent, first)
        time.sleep(0.05)
    p50, p99 = np.percentile(waits, [50, 99])
    return {"send_to_row_p50_s": round(float(p50), 2), "send_to_row_p99_s": round(float(p99), 2)}


def _arrived(layout: Layout, names: Sequence[str], seen: set[str], sent: dict[int, float], first: int) -> list[float]:
    """For the rows of files not ``seen`` yet: seconds since they were sent."""
    new = [name for name in names if name not in seen]
    seen.update(new)
    now = time.time()
    landed = Path(str(layout.landed))
    offsets = [pq.read_table(landed / name, columns=["offset"], partitioning=None)["offset"] for name in new]
    rows = np.concatenate([column.to_numpy() for column in offsets] or [np.zeros(0, np.int64)])
    starts = np.array(list(sent))
    rows = rows[rows >= first]
    return [now - sent[int(start)] for start in starts[np.searchsorted(starts, rows, side="right") - 1]]

"""The pipeline for ten minutes, never idle: events landed and proved a second, and its memory from minute to minute.

The events are made as columns, so that who makes them takes little of the cores; one in a hundred has the uuid of the
one before. ``BENCH_SUSTAINED_SECONDS`` sets another length.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.landing import pipeline, spent
from penstock.counts import Origin
from penstock.landing.table_paths import Layout
from penstock.log import Log, Sweeper, TopicSettings
from penstock.log.topic import Topic
from penstock.proof.status import Status, status
from penstock.records import binary_array, body
from penstock.testing.processes import anonymous

SECONDS = float(os.environ.get("BENCH_SUSTAINED_SECONDS", "600"))
STEP = 60.0
AHEAD = 2_000_000
"""Rows that wait at most."""
BATCH = 10_000
EVENT = (
    b'{"type":"login","uuid":"00000000-8a5b-4f5e-9d2c-000000000000","host":"web-00.example.net",'
    b'"timestamp":1770000000000,"data":{"user":"vip-000","n":1234567,"path":"/catalogue/item","ok":true}}'
)
NUMBER = EVENT.index(b"00000000-8a5b"), 8
SPREAD = EVENT.index(b"000000000000"), 12
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def measure() -> dict[str, Any]:
    """Rates of the minutes, and what the processes held at the end of each."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        data = Path(folder) / "data"
        log = Log(data / "topics", TopicSettings(segment_size_limit=64 << 20, retain_bytes=3 << 30))
        sweeper = Sweeper(log, 5.0)
        sweeper.start()
        with pipeline(data) as process:
            found = _Run(log.topic("events", create=True), data, process).figures()
        sweeper.stop()
        log.close()
    return found


class _Run:
    def __init__(self, topic: Topic, data: Path, process: subprocess.Popen[bytes]) -> None:
        self._topic, self._data, self._process = topic, data, process
        self._layout = Layout.for_tables(data / "tables")

    def figures(self) -> dict[str, Any]:
        self._feed(until=time.monotonic() + STEP)  # Spark starts, pages are new
        began, begun_at, used = self._status(), time.monotonic(), sum(spent(self._process).values())
        rates, memory = [], []
        while time.monotonic() < begun_at + SECONDS:
            before, at = self._status(), time.monotonic()
            self._feed(until=min(at + STEP, begun_at + SECONDS))
            now = self._status()
            rates.append(round((_proved(now) - _proved(before)) / (time.monotonic() - at)))
            memory.append(round(sum(map(anonymous, spent(self._process))) / (1 << 20)))
        ended = self._status()
        rows, seconds = _proved(ended) - _proved(began), time.monotonic() - begun_at
        used = sum(spent(self._process).values()) - used
        while _proved(self._status()) < self._topic.end:
            time.sleep(0.2)
        last = self._status()
        return {
            "sustained_events_per_s": round(rows / seconds),
            "sustained_cpu_us_per_event": round(used / rows * 1e6, 2),
            "sustained_events_per_s_by_minute": rates,
            "sustained_memory_mb_by_minute": memory,
            "sustained_duplicates": last.duplicates,
            "sustained_rows": last.rows,
            "sustained_unaccounted": last.unaccounted,
        }

    def _feed(self, until: float) -> None:
        while time.monotonic() < until:
            if self._topic.end - _proved(self._status()) < AHEAD:
                for _ in range(20):
                    now = int(time.time() * 1e6)
                    origin = Origin("bench", now // 60_000_000 * 60, now, now)
                    self._topic.append(events(self._topic.end, BATCH), origin).result()
            else:
                time.sleep(0.05)

    def _status(self) -> Status:
        return status(self._data / "topics", self._layout, ["events"])


def _proved(found: Status) -> int:
    return found.topics[0].proved if found.topics else 0


def events(begin: int, count: int) -> pa.RecordBatch:
    """Events of one length; of each hundred the last has the uuid of the one before."""
    numbers = np.arange(begin, begin + count, dtype=np.uint64)
    numbers -= numbers % 100 == 99
    rows = np.tile(np.frombuffer(EVENT, np.uint8), (count, 1))
    for (at, digits), values in ((NUMBER, numbers), (SPREAD, numbers * np.uint64(2654435761))):
        shifts = np.arange(4 * (digits - 1), -1, -4, dtype=np.uint64)
        rows[:, at : at + digits] = HEX[(values[:, None] >> shifts) & np.uint64(15)]
    return body(binary_array(np.arange(0, (count + 1) * len(EVENT), len(EVENT), dtype=np.int32), rows))

"""``penstock sql`` over 100 million events: a count by type, in a process of its own each time.

It takes some gigabytes of disk in the folder for temporary files, for some minutes; so only where it is named.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import LandedKeys
from penstock.landing.event_rules import MessageKind
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.writing.written_file import FileWriter, WrittenFile

ROWS = int(os.environ.get("BENCH_SQL_ROWS", "100_000_000"))
ROWS_OF_FILE = 1_000_000
DIFFERENT = 4
"""Files that are written; the others are copies of them, in the tables folder."""
TYPES, HOSTS, TIMES = 20, 100, 5
WINDOW = 600_000_000
DAY = date(2026, 1, 31)
QUERY = "select type, count(*) from events group by type"


def measure() -> dict[str, object]:
    """Seconds and CPU seconds of the command, least of several."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        layout = Layout.for_tables(Path(folder) / "tables")
        table = begin_table(layout)
        files = list(_files(Path(str(table.folder))))
        table.commit(0, files)
        LandedKeys(layout.keys, WINDOW).add(0, EventsSeen.concat([]))  # as where the newest event is not of late
        size = sum(file.size for file in files)
        runs = [_asked(Path(folder)) for _ in range(TIMES)]
    return {
        "sql: rows": ROWS,
        "sql: bytes of the table": size,
        "sql: count by type, seconds": round(min(wall for wall, _ in runs), 2),
        "sql: count by type, CPU seconds": round(min(cpu for _, cpu in runs), 2),
        "sql: count by type, all runs": ", ".join(f"{wall:.2f}" for wall, _ in runs),
    }


def _asked(data_dir: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "penstock.cli.main", "sql", QUERY, "--json", "-o", f"data_dir={data_dir}"]
    before, began = _cpu(), time.monotonic()
    answer = subprocess.run(command, capture_output=True, check=True, cwd=data_dir)
    wall, cpu = time.monotonic() - began, _cpu() - before
    assert answer.stdout.count(b"count_star()") == TYPES
    return wall, cpu


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _files(folder: Path) -> Iterator[WrittenFile]:
    made = [_file(folder, seed) for seed in range(min(DIFFERENT, ROWS // ROWS_OF_FILE))]
    yield from made
    for number in range(len(made), ROWS // ROWS_OF_FILE):
        original = made[number % DIFFERENT]
        name = original.name.replace(".parquet", f"-{number}.parquet")
        shutil.copy(folder / original.name, folder / name)
        yield replace(original, name=name)


def _file(folder: Path, seed: int) -> WrittenFile:
    """Events of a day, those of a type together, as they are when files were merged."""
    writer = FileWriter(folder, MessageKind.EVENT, DAY)
    dice = np.random.default_rng(seed)
    kinds = np.sort(dice.integers(0, TYPES, ROWS_OF_FILE))
    for begin in range(0, ROWS_OF_FILE, 100_000):
        writer.write(_rows(dice, begin + seed * ROWS_OF_FILE, kinds[begin : begin + 100_000]))
    return writer.close()


def _rows(dice: np.random.Generator, first: int, kinds: np.ndarray) -> pa.RecordBatch:
    count, at = len(kinds), datetime.combine(DAY, datetime.min.time(), UTC)
    times = pa.array(np.datetime64(at.replace(tzinfo=None), "us") + np.arange(count), pa.timestamp("us", "UTC"))
    numbers = dice.integers(0, 1 << 62, count)
    given: dict[str, pa.Array[Any]] = {
        "topic": pa.repeat(pa.scalar("events"), count),
        "offset": pa.array(np.arange(first, first + count)),
        **dict.fromkeys(["timestamp", "received", "bucket", "landed_at", "event_time"], times),
        "source": pa.repeat(pa.scalar("events-udp"), count),
        "type": pa.array([f"type-{kind}" for kind in kinds]),
        "uuid": pa.array([f"{number:016x}" for number in numbers]),
        "host": pa.array([f"web-{number % HOSTS}" for number in numbers]),
        "data": pa.array([f'{{"path":"/{number % 977}","ms":{number % 3571}}}' for number in numbers]),
    }
    columns = [given.get(field.name, pa.nulls(count, field.type)).cast(field.type) for field in FILE_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=FILE_SCHEMA)

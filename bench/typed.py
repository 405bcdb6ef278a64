"""Typed tables: the CPU of ten of them beside the landing, without Spark, in turn with a landing that has none."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from penstock.landing.from_kafka.rows import ROW
from penstock.landing.rows.table_rows import Rules
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.landing.typed.typed_tables import TypedTables
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job, MessageBatch, PartResult, write_part

TYPES = tuple(f"type_{number}" for number in range(10))
COLUMNS = (
    Column("path", "string", "path"),
    Column("ms", "int", "ms"),
    Column("user_id", "string", "user.id"),
    Column("at", "timestamp", "at"),
    Column("price", "decimal(10,2)", "price"),
)
TABLES = tuple(TypedTable(name, name, (*COLUMNS, Column(f"more_{name}", "string", f"more_{name}"))) for name in TYPES)
"""Tables with different columns, as users have them; events lack the last one."""
TASKS, ROUNDS = 2, 3
BATCHES = {20_000: 6, 200_000: 3}
"""Measured batches by their number of events: a second of a small and of a busy pipeline."""
AT = 1_770_000_000_000_000
WINDOW = 600_000_000


def measure() -> dict[str, Any]:
    """CPU (user and system) that one and ten typed tables add, divided by the CPU of a landing without any."""
    figures: dict[str, Any] = {}
    for size, count in BATCHES.items():
        batches = [_tasks(number, size) for number in range(count + 1)]
        rounds = [[_cpu_per_event(batches, tables) for tables in ((), TABLES[:1], TABLES)] for _ in range(ROUNDS)]
        figures[f"landing_us_per_event_in_batches_of_{size}"] = round(median(plain for plain, _, _ in rounds), 2)
        for n, name in ((1, "one_typed_table"), (2, "ten_typed_tables")):
            figures[f"{name}_added_share_in_batches_of_{size}"] = round(
                median(cpus[n] / cpus[0] - 1 for cpus in rounds), 2
            )
    return figures


def _cpu_per_event(batches: Sequence[Sequence[MessageBatch]], tables: Sequence[TypedTable]) -> float:
    """Land all batches into new tables; return microseconds of CPU per event of all but the first batch."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        layout = Layout.for_tables(Path(folder) / "tables")
        table = begin_table(layout)
        typed = TypedTables(layout, table, tables)
        typed.begin()
        commit = BatchCommit(table, layout.keys, WINDOW, before_commit=typed.commit)
        job = Job(table.folder, layout.keys, WINDOW, Rules(), typed=typed.writer())
        started, events = 0.0, 0
        for number, tasks in enumerate(batches):
            commit.land(number, partial(_written, tasks, job))
            # The first batch warms up.
            if number:
                events += sum(task.rows.num_rows for task in tasks)
            else:
                started = _cpu()
        return (_cpu() - started) / events * 1e6


def _written(tasks: Sequence[MessageBatch], job: Job) -> list[PartResult]:
    return [write_part([task], job, AT) for task in tasks]


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


def _tasks(number: int, size: int) -> list[MessageBatch]:
    """Return the events of a batch, one part for each task."""
    share = size // TASKS
    return [_messages(number * size + task * share, share) for task in range(TASKS)]


def _messages(begin: int, count: int) -> MessageBatch:
    offsets = range(begin, begin + count)
    times = pa.repeat(pa.scalar(AT, pa.int64()), count)
    columns: dict[str, pa.Array[Any]] = {
        "topic": pa.repeat("events", count),
        "offset": pa.array(offsets, pa.int64()),
        "payload": pa.array([_event(offset) for offset in offsets], pa.binary()),
        "codec": pa.repeat("plog", count),
        "source": pa.repeat("bench", count),
        "timestamp": times,
        "received": times,
        "bucket": times,
    }
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else _default(field, count) for field in ROW
    ]
    return MessageBatch(pa.RecordBatch.from_arrays(arrays, schema=ROW))


def _default(field: pa.Field[Any], count: int) -> pa.Array[Any]:
    default: pa.Array[Any] = pa.nulls(count, field.type)
    return pa.array([[]] * count, field.type) if field.name == "annotations" else default


def _event(number: int) -> bytes:
    """Return an event of about 250 bytes, whose fields all have a column but ``agent``."""
    event = {
        "type": TYPES[number * 7 % 10],
        "uuid": f"{number:08x}-8a5b-4f5e-9d2c-{number * 2654435761 % (1 << 48):012x}",
        "host": f"web-{number % 20}.example.net",
        "timestamp": 1_770_000_000_000 + number,
        "data": {
            "path": f"/shop/{number % 997}",
            "ms": number % 1000,
            "user": {"id": f"u-{number % 5003}"},
            "at": f"2026-02-02T{number % 24:02}:{number % 60:02}:00.{number % 1000:03}Z",
            "price": number % 10_000 / 100,
            "agent": "curl/8",
        },
    }
    return json.dumps(event, separators=(",", ":")).encode()

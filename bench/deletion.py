"""Find and delete rows among 20 million events: by uuid, by a field of the data, and by retention of a type.

It takes two gigabytes of disk in the folder for temporary files, for some minutes; so only where it is named.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.duplicates.landed_keys import LandedKeys
from penstock.landing.event_rules import MessageKind
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.table_schema import FILE_SCHEMA
from penstock.landing.writing.written_file import ROW_GROUP, FileWriter, WrittenFile
from penstock.upkeep.compaction.compaction import MAX_FILE_ROWS
from penstock.upkeep.deletion.removal import count_rows, execute_deletions, request_expired

ROWS = int(os.environ.get("BENCH_DELETION_ROWS", "20_000_000"))
ROWS_PER_FILE = MAX_FILE_ROWS
"""As merges leave them."""
TYPES, HOSTS, USERS = 20, 100, 1_000_000
DAYS = 2
FIRST_DAY = date(2026, 1, 1)
WINDOW = 600_000_000


def measure() -> dict[str, object]:
    """Return seconds by the clock and CPU seconds of each search and deletion."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        layout = Layout.for_tables(Path(folder) / "tables")
        table = begin_table(layout)
        files = [_write_file(layout.landed, number) for number in range(max(DAYS, ROWS // ROWS_PER_FILE))]
        table.commit(0, files)
        # As where the newest event is older than the window of duplicates.
        LandedKeys(layout.keys, WINDOW).add(0, EventsSeen.concat([]))
        expired_on = datetime.combine(FIRST_DAY + timedelta(days=31), datetime.min.time(), UTC).timestamp()

        def delete(where: str) -> int:
            request_deletion(layout, REQUESTED, parse_conditions(where))
            return execute_deletions(layout, WINDOW)

        def expire() -> int:
            request_expired(layout, {"event/type-07": 30 * 86_400}, expired_on)
            return execute_deletions(layout, WINDOW)

        uuid, user = f"uuid = '{_uuid(ROWS_PER_FILE + 5)}'", "data.user.id = 'u-4711'"
        steps: dict[str, Callable[[], Any]] = {
            "find a uuid": lambda: count_rows(layout, parse_conditions(uuid)),
            "delete a uuid": lambda: delete(uuid),
            "find a host": lambda: count_rows(layout, parse_conditions("host = 'web-17' and type = 'type-03'")),
            "find a field": lambda: count_rows(layout, parse_conditions(user)),
            "delete by a field": lambda: delete(user),
            "retention of a type": expire,
        }
        figures: dict[str, object] = {
            "deletion: rows": sum(file.rows for file in files),
            "deletion: bytes of the table": sum(file.size for file in files),
        }
        for name, step in steps.items():
            began, before_s = time.monotonic(), _cpu_s()
            step()
            figures[f"deletion: {name}, seconds"] = round(time.monotonic() - began, 2)
            figures[f"deletion: {name}, CPU seconds"] = round(_cpu_s() - before_s, 2)
    return figures


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _uuid(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}"


def _write_file(folder: Any, number: int) -> WrittenFile:
    """Write events of a day, as a merge does: those of a type together."""
    dice = np.random.default_rng(number)
    types = np.sort(dice.integers(0, TYPES, ROWS_PER_FILE))
    writer = FileWriter(folder, MessageKind.EVENT, FIRST_DAY + timedelta(days=number % DAYS))
    for begin in range(0, ROWS_PER_FILE, ROW_GROUP):
        writer.write(_rows(dice, number * ROWS_PER_FILE + begin, types[begin : begin + ROW_GROUP]))
    return writer.close()


def _rows(dice: np.random.Generator, first: int, types: np.ndarray[Any, Any]) -> pa.RecordBatch:
    count = len(types)
    start = np.datetime64(datetime.combine(FIRST_DAY, datetime.min.time()), "us")
    times = pa.array(start + np.arange(first, first + count), pa.timestamp("us", "UTC"))
    users, milliseconds, hosts = (dice.integers(0, limit, count).tolist() for limit in (USERS, 3571, HOSTS))
    columns: dict[str, pa.Array[Any]] = {
        "topic": pa.repeat(pa.scalar("events"), count),
        "offset": pa.array(np.arange(first, first + count)),
        **dict.fromkeys(["timestamp", "received", "bucket", "landed_at", "event_time"], times),
        "source": pa.repeat(pa.scalar("events-udp"), count),
        "type": pa.array([f"type-{kind:02}" for kind in types]),
        "uuid": pa.array(list(map(_uuid, range(first, first + count)))),
        "host": pa.array([f"web-{host}" for host in hosts]),
        "data": pa.array(
            [
                f'{{"user":{{"id":"u-{user}"}},"path":"/cart/{user % 977}","ms":{ms}}}'
                for user, ms in zip(users, milliseconds, strict=True)
            ]
        ),
    }
    arrays = [columns.get(field.name, pa.nulls(count, field.type)).cast(field.type) for field in FILE_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=FILE_SCHEMA)

"""How what it takes grows: with messages, topics, readers, connections, history, cursors and log buffers.

Each curve is (what is varied: figures), a point at a time, each with a data directory of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from bench.growth_stored import BUFFERS, CURSORS, STORED, store_topics
from bench.timing import fastest
from penstock.testing.pipe import Pipe
from penstock.testing.processes import anonymous, cpu

SIZES = [1 << n for n in (5, 7, 9, 11, 13, 15, 17, 19)] + [1_000_000]
TOPICS = (1, 10, 100, 1_000, 10_000)
READERS = (1, 10, 100, 1_000)
CONNECTIONS = (1, 10, 100, 1_000, 5_000)
MOST_BYTES, MOST_LINES = 400 << 20, 1_500_000
"""Of one measurement with a size of messages."""
CONFIG = """
[[listener]]
name = "lines"
protocol = "tcp"
port = 0
max_connections = 6000
"""
Figures = dict[str, float]


def measure() -> dict[str, Any]:
    """All figures, under ``growth CURVE POINT FIGURE``."""
    found: dict[str, Any] = {}
    for curve, (points, of) in CURVES.items():
        for point in points:
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
                figures = of(Path(folder), point)
            found |= {f"growth {curve} {point} {name}": round(value, 2) for name, value in figures.items()}
            print(curve, point, figures, file=sys.stderr, flush=True)
    return found


@contextmanager
def _served(folder: Path, *overrides: str) -> Iterator[Pipe]:
    pipe = Pipe(folder, *overrides)
    pipe.configure(CONFIG)
    pipe.start()
    try:
        yield pipe
    finally:
        pipe.stop()


def _client(name: str, *arguments: object) -> Figures:
    command = [sys.executable, "-m", "bench.growth_clients", name, *map(str, arguments)]
    found: Figures = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def message_bytes(folder: Path, size: int) -> Figures:
    """Lines of one size, sent by one TCP connection as fast as they are taken, until all are in the synced log."""
    count = min(MOST_LINES, MOST_BYTES // size)
    with _served(folder, "log.topic_defaults.message_size_limit=2MiB") as pipe:
        _lines(pipe, size, count // 10)
        daemon, receiver = pipe.pid("log daemon"), pipe.pid("receiver lines")
        before, began = cpu(daemon) + cpu(receiver), time.perf_counter()
        count = _lines(pipe, size, count)
        seconds = time.perf_counter() - began
        spent = cpu(daemon) + cpu(receiver) - before
    return {"messages_per_s": count / seconds, "mb_per_s": count * size / seconds / 1e6, "cpu_us": spent / count * 1e6}


def _lines(pipe: Pipe, size: int, count: int) -> int:
    """Send lines, and wait until they are stored; how many there were, which may be a few more."""
    host, port = pipe.address("lines")
    before = pipe.counts("lines")["accepted"]
    command = [sys.executable, "-m", "bench.sender", "lines", host, str(port), str(size), str(count), "0"]
    sent: int = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["sent"]
    stored = before + sent
    while pipe.counts("lines")["accepted"] < stored or pipe.balance()["pending"]:
        time.sleep(0.02)
    return sent


def topics(folder: Path, count: int) -> Figures:
    """So many topics with a hundred entries each: a start, what asks for all of them, appends in turn, memory.

    The first start finds no checkpoint of the ledger and reads all; ``start_again_s`` is one after a stop.
    """
    store_topics(folder / "data" / "topics", count)
    pipe = Pipe(folder, f"log.max_topics={count + 100}")
    pipe.configure(CONFIG)
    started = _start(pipe)
    try:
        idle = anonymous(pipe.pid("log daemon")) / (1 << 20)
        asked = {f"{name}_ms": _fastest(partial(_get, pipe, path)) for name, path in ASKED.items()}
        appended = _client("appends", pipe.grpc, count)
    finally:
        pipe.stop()
    again = _start(pipe)
    pipe.stop()
    return {"start_s": started, "start_again_s": again, "daemon_mib": idle, **asked, **appended}


def _start(pipe: Pipe) -> float:
    """Seconds until it answers."""
    began = time.perf_counter()
    pipe.start()
    return time.perf_counter() - began


def _get(pipe: Pipe, path: str) -> None:
    httpx.get(f"http://{pipe.http}{path}", timeout=60).raise_for_status()


ASKED = {"describe": "/describe", "balance": "/balance", "metrics": "/metrics"}


def _fastest(what: Callable[[], object]) -> float:
    """Milliseconds."""
    return 1000 * fastest(what, 3)


def readers(folder: Path, count: int) -> Figures:
    """So many gRPC streams of one topic: from an append's call until all have it, and what that costs the daemon."""
    with _served(folder) as pipe:
        daemon = pipe.pid("log daemon")
        before = cpu(daemon)
        found = _client("streams", pipe.grpc, count)
        spent = cpu(daemon) - before
        memory = anonymous(daemon) / (1 << 20)
    deliveries = found.pop("deliveries")
    return {**found, "cpu_us_a_delivery": spent / deliveries * 1e6, "daemon_mib": memory}


def connections(folder: Path, count: int) -> Figures:
    """So many idle connections: the receiver's memory, a newcomer's first answer, one sender's rate beside them."""
    with _served(folder) as pipe:
        host, port = pipe.address("lines")
        return _client("connections", host, port, count, pipe.pid("receiver lines"), pipe.http)


CURVES: dict[str, tuple[tuple[int, ...] | list[int], Callable[[Path, int], Figures]]] = {
    "message_bytes": (SIZES, message_bytes),
    "topics": (TOPICS, topics),
    "readers": (READERS, readers),
    "connections": (CONNECTIONS, connections),
    "history_mib": STORED,
    "cursors": CURSORS,
    "buffer_mib": BUFFERS,
}

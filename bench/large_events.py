"""Events of 4 and 64 KiB over TCP at 10,000 a second: from the socket through the synced log into the tables.

The sender keeps to the rate as long as it is not held back: a full log buffer stops the reading of a TCP connection, so
the rate that is reached says how much the machine can do. ``BENCH_LARGE_EVENTS_SECONDS`` sets how long it would take to
send everything at the full rate.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.landing import pipeline, spent
from penstock.landing.table_paths import Layout
from penstock.process.kernel import descendants
from penstock.proof.status import Status, status
from penstock.testing.pipe import Pipe
from penstock.testing.processes import anonymous, cpu

RATE = 10_000
SIZES = (4 << 10, 64 << 10)
SECONDS = float(os.environ.get("BENCH_LARGE_EVENTS_SECONDS", "20"))
MAX_SENT_BYTES = 4 << 30
"""Limit of what is sent of one size, as everything is on the disk twice."""
WARM_UP_BYTES = 256 << 20
SAMPLE_INTERVAL_S = 5.0
PATIENCE_S = 900.0
BLOCK_BYTES = 4 << 20
CONFIG = """
[log.topic_defaults]
retain_bytes = "3GiB"
[[listener]]
name = "events"
protocol = "tcp"
port = 0
[[listener.handlers]]
type = "log"
overflow = "block"
"""
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
PREFIX = (
    b'{"type":"order","uuid":"00000000-8a5b-4f5e-9d2c-0123456789ab","host":"web-1","timestamp":1770000000000,'
    b'"data":{"text":"'
)
NUMBER_OFFSET, NUMBER_DIGITS = PREFIX.index(b"00000000-"), 8
SUFFIX = b'"}}\n'


def measure() -> dict[str, Any]:
    """Return the figures of each size."""
    figures: dict[str, Any] = {}
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            pipe = Pipe(Path(folder))
            pipe.configure(CONFIG)
            pipe.start()
            try:
                with pipeline(pipe.data_dir) as process:
                    measured = _Run(pipe, process, size).figures()
            finally:
                pipe.stop()
        figures.update({f"large_events_{size >> 10}k_{name}": figure for name, figure in measured.items()})
    return figures


class _Run:
    def __init__(self, pipe: Pipe, process: subprocess.Popen[bytes], size: int) -> None:
        self._pipe, self._process, self._size = pipe, process, size
        self._layout = Layout.for_tables(pipe.data_dir / "tables")
        self._sent = 0
        # By process, at the last look: a worker of Spark that has ended has no CPU time any more.
        self._spent: dict[int, float] = {}

    def figures(self) -> dict[str, Any]:
        self._send(WARM_UP_BYTES // self._size)
        self._wait_until_proved()
        first, before = self._sent, self._cpu()
        memory: list[dict[str, int]] = []
        began = time.monotonic()
        sending = self._send(min(int(RATE * SECONDS), MAX_SENT_BYTES // self._size), memory)
        ended = self._wait_until_proved(memory)
        seconds = time.monotonic() - began
        used = self._cpu()
        count = self._sent - first
        counts = self._pipe.counts("events")
        lost = sum(n for name, n in counts.items() if name.startswith(("policy_drop", "overlong", "handler_failed")))
        return {
            "events": count,
            "received_per_s": round(count / sending),
            "received_mb_per_s": round(count * self._size / sending / 1e6, 1),
            "proved_per_s": round(count / seconds),
            "proved_mb_per_s": round(count * self._size / seconds / 1e6, 1),
            **{f"{part}_cpu_us_per_event": round((used[part] - before[part]) / count * 1e6, 1) for part in used},
            "lost": lost + self._sent - ended.rows,
            "unaccounted": ended.unaccounted,
            "memory_mb": memory,
        }

    def _send(self, count: int, memory: list[dict[str, int]] | None = None) -> float:
        """Send events at the rate; return the seconds that it took."""
        host, port = self._pipe.address("events")
        numbers = [str(number) for number in (port, self._size, self._sent, count, RATE)]
        command = [sys.executable, "-m", "bench.large_events", host, *numbers]
        sender = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        while sender.poll() is None:
            self._sample(memory)
            try:
                sender.wait(SAMPLE_INTERVAL_S)
            except subprocess.TimeoutExpired:
                continue
        assert sender.returncode == 0
        assert sender.stdout
        self._sent += count
        return float(json.loads(sender.stdout.read())["seconds"])

    def _wait_until_proved(self, memory: list[dict[str, int]] | None = None) -> Status:
        sampled = time.monotonic()
        end = time.monotonic() + PATIENCE_S
        while (found := self._status()).rows < self._sent:
            assert time.monotonic() < end, f"{found.rows} of {self._sent} events are in the tables"
            if time.monotonic() > sampled + SAMPLE_INTERVAL_S:
                self._sample(memory)
                sampled = time.monotonic()
            time.sleep(0.2)
        return found

    def _sample(self, memory: list[dict[str, int]] | None) -> None:
        self._spent.update(spent(self._process))
        if memory is not None:
            memory.append({part: sum(map(_anonymous, pids)) >> 20 for part, pids in self._pids().items()})

    def _cpu(self) -> dict[str, float]:
        self._spent.update(spent(self._process))
        receiver, log = self._pipe.pid("receiver events"), self._pipe.pid("log daemon")
        return {"receiver": cpu(receiver), "log": cpu(log), "pipeline": sum(self._spent.values())}

    def _pids(self) -> dict[str, list[int]]:
        return {
            "receiver": [self._pipe.pid("receiver events")],
            "log": [self._pipe.pid("log daemon")],
            "pipeline": [self._process.pid, *descendants(self._process.pid)],
        }

    def _status(self) -> Status:
        return status(self._pipe.data_dir / "topics", self._layout, ["events"])


def _anonymous(pid: int) -> int:
    # A Python worker of Spark may end between two reads.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return anonymous(pid)
    return 0


def random_words() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return 16 MiB of words of three letters, which compress to less than a half."""
    letters = HEX[np.random.default_rng(0).integers(0, 16, 16 << 20)]
    letters[3::4] = ord(" ")
    return letters


def events(begin: int, count: int, size: int, words: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> memoryview:
    """Return ``count`` lines with one event of ``size`` bytes each."""
    length = size - len(PREFIX) - len(SUFFIX) + 1
    starts = (np.arange(begin, begin + count) * 7919 * 4) % (len(words) - length)
    rows = np.empty((count, size + 1), np.uint8)
    rows[:, : len(PREFIX)] = np.frombuffer(PREFIX, np.uint8)
    rows[:, len(PREFIX) : -len(SUFFIX)] = np.lib.stride_tricks.sliding_window_view(words, length)[starts]
    rows[:, -len(SUFFIX) :] = np.frombuffer(SUFFIX, np.uint8)
    shifts = np.arange(4 * (NUMBER_DIGITS - 1), -1, -4, dtype=np.uint64)
    numbers = np.arange(begin, begin + count, dtype=np.uint64)
    rows[:, NUMBER_OFFSET : NUMBER_OFFSET + NUMBER_DIGITS] = HEX[(numbers[:, None] >> shifts) & np.uint64(15)]
    return rows.reshape(-1).data


def main() -> None:
    """Send what the command line asks for: host, port, size, number of the first event, count and rate."""
    host, *numbers = sys.argv[1:]
    port, size, begin, count, rate = map(int, numbers)
    step, words = max(BLOCK_BYTES // size, 1), random_words()
    with socket.create_connection((host, port)) as sock:
        started = time.perf_counter()
        for first in range(0, count, step):
            sock.sendall(events(begin + first, min(step, count - first), size, words))
            ahead = (first + step) / rate - (time.perf_counter() - started)
            if ahead > 0:
                time.sleep(ahead)
        print(json.dumps({"seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main()

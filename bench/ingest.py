"""From the socket on: lossless rates, rates flat out, CPU a message, memory, against a plain recv loop.

``discard`` stands for receiving alone (a handler that counts), ``log`` for the whole path into the synced log.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.testing.pipe import Pipe
from penstock.testing.processes import anonymous, cpu

SIZE = 256
SECONDS = 2.0
STEP = 1.08
LEAST = 10_000
CONFIG = """
[[listener]]
name = "discard-udp"
protocol = "udp"
port = 0
so_rcvbuf = "16MiB"
handlers = [{type = "discard"}]
[[listener]]
name = "log-udp"
protocol = "udp"
port = 0
so_rcvbuf = "16MiB"
[[listener]]
name = "discard-tcp"
protocol = "tcp"
port = 0
handlers = [{type = "discard"}]
"""


class Bench(Pipe):
    """A real ``penstock serve`` with listeners as most would have them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.configure(CONFIG)


def measure() -> dict[str, Any]:
    """All figures."""
    with _serving() as pipe:
        for listener, kind in (("discard-udp", "datagrams"), ("log-udp", "datagrams"), ("discard-tcp", "lines")):
            _run(pipe, listener, kind, SIZE, 200_000, 800_000)  # once through the whole log buffer, whose pages are new
        flat_out = _run(pipe, "discard-udp", "datagrams", SIZE, 1_000_000, 3_000_000)
        received = _lossless(pipe, "discard-udp", "datagrams", SIZE, 300_000)
        fragments = {size: _lossless(pipe, "discard-udp", "fragments", size, 120_000) for size in (4 << 10, 64 << 10)}
        lines = _run(pipe, "discard-tcp", "lines", SIZE, 0, 6_000_000)
        logged = _lossless(pipe, "log-udp", "datagrams", SIZE, 250_000)
        names = ("receiver discard-udp", "receiver log-udp", "log daemon")
        memory = {name: anonymous(pipe.pid(name)) >> 20 for name in names}
    plain = _plain_loop(100_000)
    return {
        "udp_lossless_messages_per_s": round(received["rate"]),
        "udp_receiver_cpu_us_per_message": round(received["receiver_us"], 2),
        "udp_flat_out_offered_per_s": round(flat_out["rate"]),
        "udp_flat_out_handled_per_s": round(flat_out["taken"] / flat_out["seconds"]),
        **{f"udp_lossless_fragments_per_s_{size >> 10}k": round(run["rate"]) for size, run in fragments.items()},
        "udp_receiver_cpu_us_per_fragment_64k": round(fragments[64 << 10]["receiver_us"], 2),
        "tcp_lines_per_s": round(lines["rate"]),
        "tcp_receiver_cpu_us_per_line": round(lines["receiver_us"], 2),
        "synced_log_lossless_messages_per_s": round(logged["rate"]),
        "synced_log_receiver_cpu_us_per_message": round(logged["receiver_us"], 2),
        "synced_log_daemon_cpu_us_per_message": round(logged["daemon_us"], 2),
        **{f"memory_mb_{name.replace(' ', '_')}": megabytes for name, megabytes in memory.items()},
        "plain_recv_loop_cpu_us_per_message": round(plain, 2),
        "receiver_cpu_ratio_to_plain_loop": round(plain / received["receiver_us"], 2),
    }


@contextmanager
def _serving() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        pipe = Bench(Path(folder))
        pipe.start()
        try:
            yield pipe
        finally:
            pipe.stop()


def _lossless(pipe: Pipe, listener: str, kind: str, size: int, rate: float) -> dict[str, float]:
    """The highest rate, in steps of a twelfth, at which nothing is dropped in two runs of three."""
    best = None
    while True:
        runs = [_run(pipe, listener, kind, size, int(rate), int(rate * SECONDS)) for _ in range(2)]
        if all(run["dropped"] for run in runs):
            runs.append(_run(pipe, listener, kind, size, int(rate), int(rate * SECONDS)))
        good = [run for run in runs if not run["dropped"]]
        if not good:
            if best or rate < LEAST:
                assert best, f"{kind} are dropped at {rate:.0f} a second"
                return best
            rate /= STEP**4
            continue
        best = max(good, key=lambda run: run["rate"])
        if best["rate"] < 0.9 * rate:  # the sender can do no more
            return best
        rate *= STEP


def _run(pipe: Pipe, listener: str, kind: str, size: int, rate: int, count: int) -> dict[str, float]:
    """Send ``count`` units, wait until they have met their fate, say what it took."""
    before, spent_before = pipe.counts(listener), _cpu(pipe, listener)
    host, port = pipe.address(listener)
    command = [sys.executable, "-m", "bench.sender", kind, host, str(port), str(size), str(count), str(rate)]
    sent = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    pipe.settled(60)
    grown, spent = pipe.counts(listener), _cpu(pipe, listener)
    grown.subtract(before)
    units = grown["lines"] if kind == "lines" else grown["taken"]
    dropped = grown["kernel_dropped"] + sum(count for name, count in grown.items() if name.startswith("policy_drop"))
    return {
        "rate": sent["sent"] / sent["seconds"],
        "seconds": sent["seconds"],
        "taken": units,
        "dropped": dropped,
        "receiver_us": (spent[0] - spent_before[0]) / units * 1e6,
        "daemon_us": (spent[1] - spent_before[1]) / units * 1e6,
    }


def _cpu(pipe: Pipe, listener: str) -> tuple[float, float]:
    """CPU seconds of receiver and daemon so far."""
    return cpu(pipe.pid(f"receiver {listener}")), cpu(pipe.pid("log daemon"))


def _plain_loop(rate: int) -> float:
    """CPU microseconds a message of a loop around socket.recv, in a process of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind(("127.0.0.1", 0))
        queue: multiprocessing.Queue[float] = multiprocessing.Queue()
        process = multiprocessing.Process(target=_recv_loop, args=(sock, rate, queue))
        process.start()
        where = ["127.0.0.1", str(sock.getsockname()[1])]
        command = [sys.executable, "-m", "bench.sender", "datagrams", *where, str(SIZE), str(rate + 1000), str(rate)]
        subprocess.run(command, check=True, capture_output=True)
        spent = queue.get(timeout=30)
        process.join()
    return spent


def _recv_loop(sock: socket.socket, count: int, queue: multiprocessing.Queue[float]) -> None:
    sock.settimeout(5)
    sock.recv(65535)
    before = time.process_time()
    for _ in range(count - 1):
        sock.recv(65535)
    queue.put((time.process_time() - before) / count * 1e6)

"""UDP into the synced log: lossless rate, rate flat out, CPU a message, against a plain recv loop."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.system.harness import Pipe

SIZE = 256
SECONDS = 2.0
TICKS = os.sysconf("SC_CLK_TCK")
LISTENER = "events-udp"


def measure() -> dict[str, Any]:
    """All figures of the way from the socket to the log."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        pipe = Pipe(Path(folder), "buffer.term_length=64MiB", "buffer.slots=1024")
        pipe.start()
        try:
            flat_out = _run(pipe, 0, 1_000_000)
            lossless = _lossless(pipe)
        finally:
            pipe.stop()
    plain = _plain_loop(min(int(lossless["rate"]), 100_000))
    return {
        "udp_lossless_messages_per_s": round(lossless["rate"]),
        "udp_flat_out_offered_per_s": round(flat_out["rate"]),
        "udp_flat_out_handled_per_s": round(flat_out["handled"] / flat_out["seconds"]),
        "receiver_cpu_us_per_message": round(lossless["receiver_us"], 2),
        "log_cpu_us_per_message": round(lossless["daemon_us"], 2),
        "synced_log_messages_per_s": round(lossless["logged"]),
        "plain_recv_loop_cpu_us_per_message": round(plain, 2),
        "receiver_cpu_ratio_to_plain_loop": round(plain / lossless["receiver_us"], 2),
    }


def _lossless(pipe: Pipe) -> dict[str, float]:
    """The highest rate, in steps of a tenth, at which no datagram is dropped."""
    rate, best = 60_000.0, None
    while True:
        result = _run(pipe, int(rate), int(rate * SECONDS))
        if result["dropped"]:
            assert best, f"datagrams are dropped at {rate:.0f} a second"
            return best
        best = result
        rate = max(result["rate"], rate) * 1.15


def _run(pipe: Pipe, rate: int, count: int) -> dict[str, float]:
    """Send ``count`` datagrams, wait until they are in the log, say what it took."""
    before, cpu = pipe.counts(LISTENER), _cpu(pipe)
    started = time.perf_counter()
    host, port = pipe.address(LISTENER)
    command = [sys.executable, "-m", "bench.sender", host, str(port), str(SIZE), str(count), str(rate)]
    sent = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    pipe.settled(60)
    elapsed = time.perf_counter() - started
    after, spent = pipe.counts(LISTENER), _cpu(pipe)
    handled = after["accepted"] - before["accepted"]
    return {
        "rate": sent["sent"] / sent["seconds"],
        "seconds": sent["seconds"],
        "handled": handled,
        "dropped": after["kernel_dropped"] - before["kernel_dropped"],
        "logged": handled / max(sent["seconds"], elapsed - 1.5),  # settling is looked at five times
        "receiver_us": (spent[0] - cpu[0]) / handled * 1e6,
        "daemon_us": (spent[1] - cpu[1]) / handled * 1e6,
    }


def _cpu(pipe: Pipe) -> tuple[float, float]:
    """CPU seconds of receiver and daemon so far."""
    return _process_cpu(pipe.pid(f"receiver {LISTENER}")), _process_cpu(pipe.pid("log daemon"))


def _process_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _plain_loop(rate: int) -> float:
    """CPU microseconds a message of a loop around socket.recv, in a process of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        queue: multiprocessing.Queue[float] = multiprocessing.Queue()
        process = multiprocessing.Process(target=_recv_loop, args=(sock, rate, queue))
        process.start()
        command = [sys.executable, "-m", "bench.sender", "127.0.0.1", str(port), str(SIZE), str(rate + 1000), str(rate)]
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

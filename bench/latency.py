"""From the socket to a reader's stream: 1,000 datagrams a second, each of which says when it was sent.

And the CPU of the receiver, the log and their supervisor at several rates, when nobody reads.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from penstock.client.sender import udp_socket
from penstock.slogd import slogd_pb2 as pb
from penstock.testing.pipe import Pipe
from penstock.testing.processes import cpu_of_all

RATE, SECONDS, SIZE = 1000, 10, 256
RATES, STEADY = (10, 100, 1000, 10_000, 100_000, 200_000), 10_000
"""Datagrams a second; up to STEADY each is sent at its time, above that 64 at once."""
CONFIG = """
[[listener]]
name = "live"
protocol = "udp"
port = 0
handlers = [{type = "log", topic = "live"}]
"""
SERVICE = "/slogd.StructuredLog/"


def measure() -> dict[str, Any]:
    """Milliseconds, the median and that of 99 of 100; how many came; and the cores that all processes took."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        pipe = Pipe(Path(folder))
        pipe.configure(CONFIG)
        pipe.start()
        try:
            figures = {f"cores_at_{rate}_a_second": round(_cores(pipe, rate), 3) for rate in RATES}
            return {**figures, **_latency(pipe)}
        finally:
            pipe.stop()


def _cores(pipe: Pipe, rate: int) -> float:
    host, port = pipe.address("live")
    before = _cpu(pipe)
    if rate > STEADY:
        count = str(rate * SECONDS)
        command = [sys.executable, "-m", "bench.sender", "separate", host, str(port), str(SIZE), count, str(rate)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    else:
        with udp_socket(host, port) as sock:
            _send(sock, rate)
    return (_cpu(pipe) - before) / SECONDS


def _latency(pipe: Pipe) -> dict[str, Any]:
    before = _cpu(pipe)
    waits = _waits(pipe)
    p50, p99 = np.percentile(waits, [50, 99])
    figures = {"p50_ms": round(1000 * p50, 2), "p99_ms": round(1000 * p99, 2), "of": len(waits)}
    figures["cores"] = round((_cpu(pipe) - before) / SECONDS, 3)
    return {f"socket_to_stream_{name}": value for name, value in figures.items()}


def _send(sock: socket.socket, rate: int) -> None:
    began = time.perf_counter()
    for number in range(rate * SECONDS):
        time.sleep(max(began + number / rate - time.perf_counter(), 0))
        sock.send(f"{time.perf_counter():<{SIZE}.9f}".encode())


def _cpu(pipe: Pipe) -> float:
    assert pipe.process
    return cpu_of_all(pipe.process.pid)


def _waits(pipe: Pipe) -> list[float]:
    with grpc.insecure_channel(pipe.grpc) as channel, udp_socket(*pipe.address("live")) as sock:
        pages = _stream(channel)
        found: list[float] = []
        following = threading.Thread(target=_follow, args=(pages, found))
        following.start()
        _send(sock, RATE)
        following.join(10)
        pages.cancel()
        return found


def _stream(channel: grpc.Channel) -> Any:
    """What comes from now on, in a topic that is there."""
    first = pb.AppendRequest(topic="live", logs=[pb.LogEntry(raw_bytes=b"first")])
    append: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SERVICE + "AppendLogs")
    append(first.SerializeToString(), wait_for_ready=True)
    asked = pb.GetLogsRequest(topic="live", position=pb.GetLogsRequest.LATEST)
    call: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(SERVICE + "StreamLogs")
    pages = call(asked.SerializeToString())
    pages.initial_metadata()
    return pages


def _follow(pages: Any, found: list[float]) -> None:
    for page in pages:
        now = time.perf_counter()
        found += [now - float(entry.raw_bytes) for entry in pb.GetLogsResponse.FromString(page).logs]
        if len(found) >= RATE * SECONDS:
            return


if __name__ == "__main__":
    print(measure())

"""Clients of the growth curves, each in a process of its own: ``python -m bench.growth_clients NAME ...``."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import httpx

from bench.log import OPTIONS, SERVICE, _request
from penstock.slogd import slogd_pb2 as pb
from penstock.testing.processes import anonymous

SECONDS = 3.0
CALLERS, ENTRIES = 64, 10
CHANNELS = 10
DELIVERIES = 2_000
"""Pages a second, to all readers together."""
LINES = 300_000


async def _appends(address: str, topics: int) -> dict[str, float]:
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SERVICE + "AppendLogs")
        done = 0
        until, began = time.perf_counter() + SECONDS, time.perf_counter()

        async def append() -> None:
            nonlocal done
            while time.perf_counter() < until:
                done += 1
                await call(_request(f"topic-{done * 7919 % topics}", ENTRIES))

        await asyncio.gather(*(append() for _ in range(CALLERS)))
        return {"appends_per_s": done / (time.perf_counter() - began)}


def appends(address: str, topics: str) -> dict[str, float]:
    """Requests a second of 64 callers, ten entries each, to so many topics in turn."""
    return asyncio.run(_appends(address, int(topics)))


class _Streams:
    """Readers of one topic, and when each of them had what was appended."""

    def __init__(self, channels: list[Any]) -> None:
        self.seen: list[list[float]] = []
        self._channels = channels

    async def follow(self, number: int, ready: asyncio.Semaphore) -> None:
        """Note when entries come, until cancelled."""
        seen: list[float] = []
        self.seen.append(seen)
        asked = pb.GetLogsRequest(topic="live", position=pb.GetLogsRequest.LATEST).SerializeToString()
        stream = self._channels[number % len(self._channels)].unary_stream(SERVICE + "StreamLogs")(asked)
        await stream.initial_metadata()
        ready.release()
        async for page in stream:
            now = time.perf_counter()
            seen += [now] * (len(pb.GetLogsResponse.FromString(page).logs) // ENTRIES)


async def _delivered(address: str, readers: int) -> dict[str, float]:
    channels = [grpc.aio.insecure_channel(address, options=[*OPTIONS, ("grpc.channel", n)]) for n in range(CHANNELS)]
    append: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channels[0].unary_unary(SERVICE + "AppendLogs")
    request = _request("live", ENTRIES)
    await append(request)
    streams, ready = _Streams(channels), asyncio.Semaphore(0)
    following = [asyncio.create_task(streams.follow(n, ready)) for n in range(readers)]
    for _ in following:
        await ready.acquire()
    pause, sent = max(readers / DELIVERIES, 0.01), list[float]()
    while len(sent) < max(SECONDS / pause, 5):
        sent.append(time.perf_counter())
        await append(request)
        await asyncio.sleep(max(sent[-1] + pause - time.perf_counter(), 0))
    end = time.perf_counter() + 30
    while any(len(seen) < len(sent) for seen in streams.seen) and time.perf_counter() < end:
        await asyncio.sleep(0.05)
    late = sorted(at - begun for seen in streams.seen for begun, at in zip(sent, seen, strict=False))
    assert len(late) == readers * len(sent), f"{len(late)} of {readers * len(sent)} came"
    for task in following:
        task.cancel()
    quantiles = {"p50_ms": 1000 * late[len(late) // 2], "p99_ms": 1000 * late[len(late) * 99 // 100]}
    return {**quantiles, "deliveries": len(late)}


def streams(address: str, readers: str) -> dict[str, float]:
    """Milliseconds from an append's call until a reader has it, of so many readers."""
    return asyncio.run(_delivered(address, int(readers)))


def connections(host: str, port: str, count: str, receiver: str, http: str) -> dict[str, float]:
    """Memory of the receiver in MiB with so many idle connections, a newcomer's wait, and a sender's rate."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    place = host, int(port)
    held = [socket.create_connection(place) for _ in range(int(count))]
    for one in held:
        one.sendall(b"hello\n")
    _taken(http, int(count))
    memory = anonymous(int(receiver)) / (1 << 20)
    began = time.perf_counter()
    newcomer = socket.create_connection(place)
    newcomer.sendall(b"\0\0PING1\n")
    newcomer.recv(1)
    waited = time.perf_counter() - began
    data = (b"x" * 255 + b"\n") * 1000
    began = time.perf_counter()
    for _ in range(LINES // 1000):
        newcomer.sendall(data)
    _taken(http, int(count) + LINES)
    rate = LINES / (time.perf_counter() - began)
    return {"receiver_mib": memory, "newcomer_ms": 1000 * waited, "lines_per_s": rate}


def _taken(http: str, count: int) -> None:
    """Wait until so many messages were accepted."""
    while True:
        listeners = httpx.get(f"http://{http}/balance").json()["listeners"]
        if sum(one["counts"].get("accepted", 0) for one in listeners) >= count:
            return
        time.sleep(0.02)


CLIENTS: dict[str, Callable[..., dict[str, float]]] = {
    "appends": appends,
    "streams": streams,
    "connections": connections,
}

if __name__ == "__main__":
    print(json.dumps(CLIENTS[sys.argv[1]](*sys.argv[2:])))

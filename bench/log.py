"""The log daemon: appends, reads, streams, Flight, latency and memory, each by clients in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from bench.read_load import pages, stream
from penstock.records import binary_array, body
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.columns.decode import parse_logs
from penstock.testing.pipe import Pipe
from penstock.testing.processes import anonymous

SIZE = 256
SECONDS = 3.0
READ = 300_000
"""Entries that are read back."""
FLIGHT_ROWS, FLIGHT_BATCH = 1_500_000, 10_000
TOPICS = 1000
"""As many as a daemon takes by default."""
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
SERVICE = "/slogd.StructuredLog/"


def measure() -> dict[str, Any]:
    """All figures of the log daemon."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        pipe = Pipe(Path(folder), "log.topic_defaults.segment_size_limit=64MiB", f"log.max_topics={TOPICS + 100}")
        pipe.start()
        try:
            idle = _anonymous(pipe)
            figures = {"log_fdatasync_per_s": round(_disk(Path(folder)))}
            for case in CASES:
                figures |= _apart(case, pipe)
            figures |= {"log_daemon_pss_anon_idle_mib": idle, "log_daemon_pss_anon_loaded_mib": _anonymous(pipe)}
        finally:
            pipe.stop()
    return figures


def _apart(case: str, pipe: Pipe) -> dict[str, Any]:
    """A case in a process of its own, as a client has one."""
    command = [sys.executable, "-m", "bench.log", case, pipe.grpc, pipe.flight]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _anonymous(pipe: Pipe) -> int:
    return anonymous(pipe.pid("log daemon")) >> 20


def _disk(folder: Path) -> float:
    """Appends of 4 KiB with fdatasync a second, by a bare loop: what the disk allows one caller."""
    descriptor = os.open(folder / "plain", os.O_RDWR | os.O_CREAT)
    data, count, began = b"x" * 4096, 0, time.perf_counter()
    while time.perf_counter() < began + 1:
        os.write(descriptor, data)
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    return count / (time.perf_counter() - began)


def _request(topic: str, entries: int) -> bytes:
    logs = [pb.LogEntry(raw_bytes=os.urandom(SIZE)) for _ in range(entries)]
    return pb.AppendRequest(topic=topic, logs=logs).SerializeToString()


async def _append(address: str, topic: str, callers: int, entries: int) -> float:
    """Entries a second of so many callers, each waiting for its answer."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SERVICE + "AppendLogs")
        request = _request(topic, entries)
        await call(request)
        until, began = time.perf_counter() + SECONDS, time.perf_counter()

        async def append() -> int:
            count = 0
            while time.perf_counter() < until:
                await call(request)
                count += entries
            return count

        total = sum(await asyncio.gather(*(append() for _ in range(callers))))
        return total / (time.perf_counter() - began)


async def _many_topics(address: str) -> float:
    """Requests a second of 64 callers that write and read ``TOPICS`` topics in turn, 100 entries a request."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        append: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SERVICE + "AppendLogs")
        get: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SERVICE + "GetLogs")
        todo = [(_request(f"topic-{number}", 100), f"topic-{number}") for _ in range(2) for number in range(TOPICS)]
        requests, began = 2 * len(todo), time.perf_counter()

        async def work() -> None:
            while todo:
                request, topic = todo.pop()
                await append(request)
                await get(pb.GetLogsRequest(topic=topic).SerializeToString())

        await asyncio.gather(*(work() for _ in range(64)))
        return requests / (time.perf_counter() - began)


async def _append_stream(address: str, topic: str, under_way: int) -> float:
    """Entries a second by one AppendStream, one entry a request, with so many requests under way."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        room, request = asyncio.Semaphore(under_way), _request(topic, 1)
        until = time.perf_counter() + SECONDS

        async def requests() -> AsyncIterator[bytes]:
            while time.perf_counter() < until:
                await room.acquire()
                yield request

        began, count = time.perf_counter(), 0
        call: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(SERVICE + "AppendStream")
        async for _ in call(requests()):
            room.release()
            count += 1
        return count / (time.perf_counter() - began)


def _appends(grpc_address: str, _: str) -> dict[str, Any]:
    run = asyncio.run
    return {
        "log_append_1_caller_per_s": round(run(_append(grpc_address, "one", 1, 1))),
        "log_append_64_callers_per_s": round(run(_append(grpc_address, "many", 64, 1))),
        "log_append_stream_64_under_way_per_s": round(run(_append_stream(grpc_address, "stream", 64))),
        "log_append_1000_entries_1_caller_per_s": round(run(_append(grpc_address, "batch", 1, 1000))),
        "log_append_1000_entries_4_callers_per_s": round(run(_append(grpc_address, "batches", 4, 1000))),
    }


def _reads(grpc_address: str, _: str) -> dict[str, Any]:
    with grpc.insecure_channel(grpc_address, OPTIONS) as channel:
        append: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SERVICE + "AppendLogs")
        for _number in range(READ // 1000):
            append(_request("read", 1000))
        return {
            "log_get_1000_a_page_per_s": round(_timed(lambda: pages(channel, "read", READ))),
            "log_get_1000_a_page_as_arrow_per_s": round(_timed(lambda: pages(channel, "read", READ, _as_arrow))),
            "log_stream_catch_up_per_s": round(_timed(lambda: stream(channel, "read", READ))),
        }


def _timed(read: Callable[[], int]) -> float:
    """Entries a second, the better of two."""
    best = 0.0
    for _ in range(2):
        began = time.perf_counter()
        best = max(best, read() / (time.perf_counter() - began))
    return best


def _as_arrow(answer: bytes) -> int:
    return parse_logs(answer)[0].num_rows


def _flights(_: str, address: str) -> dict[str, Any]:
    offsets = np.arange(FLIGHT_BATCH + 1, dtype=np.int32) * SIZE
    data = np.random.default_rng(1).integers(32, 127, FLIGHT_BATCH * SIZE, dtype=np.uint8)
    payloads = binary_array(offsets, data)
    with flight.connect(f"grpc://{address}") as client:
        began = time.perf_counter()
        _put(client, body(payloads))
        put = FLIGHT_ROWS / (time.perf_counter() - began)
        get = _timed(lambda: sum(_rows(chunk) for chunk in client.do_get(flight.Ticket(b'{"topic":"flight"}'))))
    return {"log_flight_put_rows_per_s": round(put), "log_flight_get_rows_per_s": round(get)}


def _rows(chunk: flight.FlightStreamChunk) -> int:
    return 0 if chunk.data is None else chunk.data.num_rows


def _put(client: Any, batch: pa.RecordBatch) -> None:
    writer, answers = client.do_put(flight.FlightDescriptor.for_path("flight"), batch.schema)

    def drain() -> None:
        while answers.read() is not None:
            pass

    draining = threading.Thread(target=drain)
    draining.start()
    for _ in range(FLIGHT_ROWS // FLIGHT_BATCH):
        writer.write_batch(batch)
    writer.done_writing()
    draining.join()
    writer.close()


async def _latency(address: str) -> list[float]:
    """Seconds from the call of an append to its entries in a stream: 100 requests a second, of 10 entries each."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        append: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SERVICE + "AppendLogs")
        request = _request("live", 10)
        await append(request)
        call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(SERVICE + "StreamLogs")
        stream = call(pb.GetLogsRequest(topic="live", position=pb.GetLogsRequest.LATEST).SerializeToString())
        await stream.initial_metadata()
        count, sent, seen = int(100 * SECONDS), list[float](), list[float]()

        async def follow() -> None:
            async for page in stream:
                entries = len(pb.GetLogsResponse.FromString(page).logs)
                seen.extend([time.perf_counter()] * (entries // 10))
                if len(seen) >= count:
                    return

        following, calls = asyncio.create_task(follow()), []
        began = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(began + number / 100 - time.perf_counter(), 0))
            sent.append(time.perf_counter())
            calls.append(asyncio.ensure_future(append(request)))
        await asyncio.gather(following, *calls)
        stream.cancel()
        return [after - before for before, after in zip(sent, seen, strict=False)]


def _live(grpc_address: str, _: str) -> dict[str, Any]:
    late = sorted(asyncio.run(_latency(grpc_address)))
    return {
        "log_publish_to_stream_p50_ms": round(1000 * late[len(late) // 2], 2),
        "log_publish_to_stream_p99_ms": round(1000 * late[len(late) * 99 // 100], 2),
    }


def _topics(grpc_address: str, _: str) -> dict[str, Any]:
    return {"log_1000_topics_requests_per_s": round(asyncio.run(_many_topics(grpc_address)))}


CASES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "appends": _appends,
    "reads": _reads,
    "flights": _flights,
    "live": _live,
    "topics": _topics,  # the last one: with so many the loaded daemon's memory is told
}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]](*sys.argv[2:])))

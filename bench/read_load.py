"""``python -m bench.read_load ADDRESS``: entries are appended, read by pages, and streamed; prints JSON.

It speaks slogd's protocol, to slogd and to Penstock alike, and takes what it reads apart.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import grpc

from penstock.slogd import slogd_pb2 as pb

SIZE, PAGE, BATCH = 256, 1000, 333
"""Bytes of an entry, entries of a page, and of an append: slogd repeats pages that end with a segment."""
ENTRIES = 300 * BATCH
SERVICE = "/slogd.StructuredLog/"


def main() -> None:
    """Entries a second, read both ways."""
    with grpc.insecure_channel(sys.argv[1], [("grpc.max_receive_message_length", -1)]) as channel:
        append = channel.unary_unary(SERVICE + "AppendLogs")
        logs = [pb.LogEntry(raw_bytes=b"m" * SIZE) for _ in range(BATCH)]
        topic = f"read-{time.time_ns()}"
        request = pb.AppendRequest(topic=topic, logs=logs).SerializeToString()
        for _ in range(ENTRIES // BATCH):
            append(request, wait_for_ready=True)
        found = {"pages_per_s": _timed(channel, topic, _pages), "stream_per_s": _timed(channel, topic, _stream)}
    print(json.dumps(found))


def _timed(channel: grpc.Channel, topic: str, read: Callable[[grpc.Channel, str], None]) -> float:
    began = time.perf_counter()
    read(channel, topic)
    return ENTRIES / (time.perf_counter() - began)


def _pages(channel: grpc.Channel, topic: str) -> None:
    call, offset = channel.unary_unary(SERVICE + "GetLogs"), 0
    while offset < ENTRIES:
        asked = pb.GetLogsRequest(topic=topic, offset=offset, max_messages=PAGE)
        page = pb.GetLogsResponse.FromString(call(asked.SerializeToString()))
        offset += len(page.logs)


def _stream(channel: grpc.Channel, topic: str) -> None:
    asked = pb.GetLogsRequest(topic=topic, offset=0)
    pages, count = channel.unary_stream(SERVICE + "StreamLogs")(asked.SerializeToString()), 0
    for page in pages:
        count += len(pb.GetLogsResponse.FromString(page).logs)
        if count >= ENTRIES:
            pages.cancel()
            return


if __name__ == "__main__":
    main()

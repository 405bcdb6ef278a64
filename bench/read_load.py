"""``python -m bench.read_load ADDRESS``: entries are appended, read by pages, and streamed; prints JSON.

It speaks slogd's protocol, to slogd and to Penstock alike, and takes what it reads apart.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import grpc

from bench.timing import timed
from penstock.slogd import slogd_pb2 as pb

SIZE, PAGE, BATCH = 256, 1000, 333
"""Bytes of an entry, entries of a page, and of an append: slogd repeats pages that end with a segment."""
ENTRIES = 300 * BATCH
SERVICE = "/slogd.StructuredLog/"


def main() -> None:
    """Entries a second, read both ways, and how many cores that took here."""
    with grpc.insecure_channel(sys.argv[1], [("grpc.max_receive_message_length", -1)]) as channel:
        append: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SERVICE + "AppendLogs")
        logs = [pb.LogEntry(raw_bytes=b"m" * SIZE) for _ in range(BATCH)]
        topic = f"read-{time.time_ns()}"
        request = pb.AppendRequest(topic=topic, logs=logs).SerializeToString()
        for _ in range(ENTRIES // BATCH):
            append(request, wait_for_ready=True)
        found: dict[str, float] = {}
        for name, read in {"pages": pages, "stream": stream}.items():
            with timed() as spent:
                count = read(channel, topic, ENTRIES)
            found |= {f"{name}_per_s": count / spent.seconds, f"{name}_client_cores": spent.cores}
    print(json.dumps(found))


def entries_of(answer: bytes) -> int:
    """How many entries an answer has."""
    return len(pb.GetLogsResponse.FromString(answer).logs)


def pages(channel: grpc.Channel, topic: str, entries: int, taken: Callable[[bytes], int] = entries_of) -> int:
    """Read so many entries from the beginning on, page by page; how many there were. ``taken`` takes a page apart."""
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SERVICE + "GetLogs")
    offset = 0
    while offset < entries:
        asked = pb.GetLogsRequest(topic=topic, offset=offset, max_messages=PAGE)
        offset += taken(call(asked.SerializeToString()))
    return offset


def stream(channel: grpc.Channel, topic: str, entries: int) -> int:
    """As ``pages``, by one stream."""
    asked = pb.GetLogsRequest(topic=topic, offset=0)
    call: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(SERVICE + "StreamLogs")
    answers, count = call(asked.SerializeToString()), 0
    for answer in answers:
        count += entries_of(answer)
        if count >= entries:
            answers.cancel()
            break
    return count


if __name__ == "__main__":
    main()

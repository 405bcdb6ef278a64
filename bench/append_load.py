"""``python -m bench.append_load ADDRESS TOPIC CALLERS ENTRIES SECONDS``: callers that append and wait; prints JSON.

It speaks slogd's protocol, to slogd and to Penstock alike. A client in Go says more of a fast server than this one.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import grpc

from bench.timing import timed
from penstock.slogd import slogd_pb2 as pb

SIZE = 256


def main() -> None:
    """Append for so many seconds."""
    address, topic, callers, entries, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
    logs = [pb.LogEntry(raw_bytes=b"m" * SIZE) for _ in range(int(entries))]
    request = pb.AppendRequest(topic=topic, logs=logs).SerializeToString()
    with grpc.insecure_channel(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/slogd.StructuredLog/AppendLogs")
        until, taken, refused = time.perf_counter() + seconds, [0] * int(callers), [0] * int(callers)

        def append(caller: int) -> None:
            while time.perf_counter() < until:
                try:
                    call(request, wait_for_ready=True)
                    taken[caller] += 1
                except grpc.RpcError:
                    refused[caller] += 1

        threads = [threading.Thread(target=append, args=(caller,)) for caller in range(int(callers))]
        with timed() as spent:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    told = {"requests": sum(taken), "failed": sum(refused), "seconds": spent.seconds, "cores": spent.cores}
    print(json.dumps(told))


if __name__ == "__main__":
    main()

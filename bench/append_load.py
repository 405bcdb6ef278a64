"""``python -m bench.append_load ADDRESS TOPIC CALLERS ENTRIES SECONDS``: callers that append and wait; prints JSON.

It speaks slogd's protocol, to slogd and to Penstock alike. A client in Go says more of a fast server than this one.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import grpc

from penstock.slogd import slogd_pb2 as pb

SIZE = 256


def main() -> None:
    """Append for so many seconds."""
    address, topic, callers, entries, seconds = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
    logs = [pb.LogEntry(raw_bytes=b"m" * SIZE) for _ in range(int(entries))]
    request = pb.AppendRequest(topic=topic, logs=logs).SerializeToString()
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/slogd.StructuredLog/AppendLogs")
        until, taken, refused = time.perf_counter() + seconds, [0] * int(callers), [0] * int(callers)

        def append(caller: int) -> None:
            while time.perf_counter() < until:
                try:
                    call(request, wait_for_ready=True)
                    taken[caller] += 1
                except grpc.RpcError:
                    refused[caller] += 1

        began = time.perf_counter()
        threads = [threading.Thread(target=append, args=(caller,)) for caller in range(int(callers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
    print(json.dumps({"requests": sum(taken), "failed": sum(refused), "seconds": took}))


if __name__ == "__main__":
    main()

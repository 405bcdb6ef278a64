"""``python -m bench.nats_load append ADDRESS TOPIC CALLERS ENTRIES SECONDS``, ``read ADDRESS``: JetStream; prints JSON.

What ``append_load`` and ``read_load`` do with slogd's protocol, by nats-py: a coroutine for each caller, in one thread.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator

import nats
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from bench.timing import timed

MESSAGE = b"m" * 256
PAGE, BATCH = 1000, 1000
ENTRIES = 10 * BATCH
"""Fewer than Penstock and slogd have: each is a sync where all are synced."""
PATIENCE = 60.0


async def main() -> None:
    """One of both."""
    what, address, *rest = sys.argv[1:]
    client = await nats.connect(f"nats://{address}")
    told = await (append if what == "append" else read)(client.jetstream(), *rest)
    await client.close()
    print(json.dumps(told))


async def append(jet: JetStreamContext, topic: str, *numbers: str) -> dict[str, float]:
    """Publish for so many seconds; each caller waits until what it sent is acknowledged."""
    callers, entries, seconds = int(numbers[0]), int(numbers[1]), float(numbers[2])
    await _stream(jet, topic)
    until, taken, refused = time.perf_counter() + seconds, [0] * callers, [0] * callers

    async def call(caller: int) -> None:
        while time.perf_counter() < until:
            try:
                await _publish(jet, topic, entries)
                taken[caller] += 1
            except (Error, TimeoutError):
                refused[caller] += 1

    with timed() as spent:
        await asyncio.gather(*(call(caller) for caller in range(callers)))
    return {"requests": sum(taken), "failed": sum(refused), "seconds": spent.seconds, "cores": spent.cores}


async def _stream(jet: JetStreamContext, topic: str) -> int:
    """Have a stream with files; how many messages it has."""
    info = await jet.add_stream(StreamConfig(name=topic, subjects=[topic], storage=StorageType.FILE))
    return int(info.state.messages)


async def _publish(jet: JetStreamContext, topic: str, entries: int) -> None:
    """One message, or so many that are on their way at once."""
    if entries == 1:
        await jet.publish(topic, MESSAGE)
    else:
        sent = [await jet.publish_async(topic, MESSAGE) for _ in range(entries)]
        await asyncio.wait_for(asyncio.gather(*sent), PATIENCE)


async def read(jet: JetStreamContext) -> dict[str, float]:
    """Messages a second, of a pull consumer and of one that is pushed to."""
    for _ in range(await _stream(jet, "read"), ENTRIES, BATCH):
        await _publish(jet, "read", BATCH)
    found: dict[str, float] = {}
    for name, messages in {"pages": _pages(jet), "stream": _pushed(jet)}.items():
        with timed() as spent:
            count = await _counted(messages)
        found |= {f"{name}_per_s": count / spent.seconds, f"{name}_client_cores": spent.cores}
    return found


async def _counted(lengths: AsyncIterator[int]) -> int:
    count = 0
    async for length in lengths:
        count += length
        if count >= ENTRIES:
            break
    return count


async def _pages(jet: JetStreamContext) -> AsyncIterator[int]:
    """The lengths of pages of a pull consumer, from the beginning on."""
    consumer = await jet.pull_subscribe("read", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
    while True:
        yield len(await consumer.fetch(PAGE))


async def _pushed(jet: JetStreamContext) -> AsyncIterator[int]:
    """1 for each message that an ordered consumer is sent."""
    consumer = await jet.subscribe("read", ordered_consumer=True)
    async for _ in consumer.messages:
        yield 1


if __name__ == "__main__":
    asyncio.run(main())

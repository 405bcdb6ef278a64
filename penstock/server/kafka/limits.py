"""What all clients of Kafka's protocol together may take: connections, and bytes of requests under way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.process.bytes_under_way import BytesUnderWay, Held

LARGEST = 100 << 20
"""Bytes of one request; Kafka's own limit."""
IDLE = 600.0
"""Seconds after which a silent connection is closed."""


@dataclass(slots=True)
class KafkaLimits(BytesUnderWay):
    """Requests under way, and so many ``connections`` at once."""

    connections: int = 1000


async def frame(reader: asyncio.StreamReader, limits: KafkaLimits, held: Held) -> memoryview | None:
    """The next request; None where the client is gone, silent, too slow, or asks for too much."""
    try:
        async with asyncio.timeout(IDLE):
            size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
        if not 0 < size <= LARGEST:
            return None
        found = bytearray()
        async with asyncio.timeout(limits.time_for(size)):
            while len(found) < size:
                part = await reader.read(size - len(found))
                if not part:
                    return None
                found += part
                limits.grown(held, len(part))
        held.whole = True
        return memoryview(found).toreadonly()
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        return None

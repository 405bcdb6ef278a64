"""Memory of a large message: twice its size plus the configured queues."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kafka.kafka_helpers import Topics

SIZE = 100_000_000
QUEUE_KBYTES = 16_384
SLACK = 24 << 20
"""Memory for the allocator, threads, and requests in flight."""


def measured(side: str, topics: Topics, topic: str) -> tuple[int, int]:
    script = Path(__file__).parents[1] / "kafka_memory.py"
    command = [sys.executable, str(script), side, topics.address, topic, str(SIZE), str(QUEUE_KBYTES)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout.split()
    return int(output[0]), int(output[1])


def test_message_of_100_mb_takes_bounded_memory_on_both_sides(topics: Topics) -> None:
    topic = topics.new()
    produced, sum_sent = measured("produce", topics, topic)
    consumed, sum_read = measured("consume", topics, topic)
    assert sum_sent == sum_read
    bound = 2 * SIZE + QUEUE_KBYTES * 1024 + SLACK
    assert (produced < bound, consumed < bound) == (True, True), (produced, consumed, bound)

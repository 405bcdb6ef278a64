"""Measure the memory of one large message: ``python kafka_memory.py produce|consume ADDRESS TOPIC BYTES
QUEUE_KBYTES``. Prints the peak memory beyond the initial memory in bytes, and the CRC of the message.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

from confluent_kafka import TopicPartition

from penstock.kafka import Consumer, Producer


def resident(field: str) -> int:
    """Return VmRSS or VmHWM of this process in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def produce(address: str, topic: str, size: int, queue: int) -> tuple[int, int]:
    """Send one message."""
    config = {"bootstrap.servers": address, "large.message.enabled": True, "queue.buffering.max.kbytes": queue}
    producer = Producer(config)
    producer.produce(topic, b"small")
    producer.flush(60)
    before = resident("VmRSS")
    value = bytes(range(256)) * (size // 256)
    producer.produce(topic, value)
    assert producer.flush(120) == 0
    return resident("VmHWM") - before, zlib.crc32(value)


def consume(address: str, topic: str, size: int, queue: int) -> tuple[int, int]:
    """Read the message."""
    config = {"bootstrap.servers": address, "group.id": "memory", "queued.max.messages.kbytes": queue}
    capacity = {"message.assembler.buffer.capacity": size + (1 << 20)}
    consumer = Consumer({**config, **capacity, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.consume(1, 60)[0].value() == b"small"
    before = resident("VmRSS")
    (received,) = consumer.consume(1, 120)
    most = resident("VmHWM") - before
    return most, zlib.crc32(received.value())


if __name__ == "__main__":
    command = {"produce": produce, "consume": consume}[sys.argv[1]]
    print(*command(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))

"""A member of a group in its own process: prints the committed offsets and the first message of each partition."""

from __future__ import annotations

import json
import sys

from confluent_kafka import TopicPartition

from penstock.kafka import Consumer
from tests.kafka.kafka_helpers import QUICK


def main(address: str, topic: str, group: str, partitions: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False, **QUICK})
    consumer.subscribe([topic])
    first: dict[int, int] = {}
    while len(first) < partitions:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            first.setdefault(message.partition() or 0, message.offset() or 0)
    committed = consumer.committed([TopicPartition(topic, number) for number in range(partitions)])
    print(
        json.dumps(
            {
                "first": sorted(first.items()),
                "committed": [(partition.offset, partition.metadata) for partition in committed],
            }
        )
    )
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))

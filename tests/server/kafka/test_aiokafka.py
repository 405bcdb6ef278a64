"""aiokafka: a client in Python that shares no code with librdkafka or Java's clients."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.server.running import Running

DEADLINE = 30.0


async def produce(endpoint: Running, values: list[bytes], **config: object) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=endpoint.bound.kafka, **config) as producer:
        sent = [await producer.send("t", value, key=b"k", headers=[("h", b"1")]) for value in values]
        return [(await report).offset for report in sent]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_produced_messages_are_consumed(endpoint: Running, codec: str | None) -> None:
    values = [b"%d" % number * 20 for number in range(500)]

    async def scenario() -> None:
        assert await produce(endpoint, values, compression_type=codec, enable_idempotence=True) == list(range(500))
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=endpoint.bound.kafka, group_id="g", auto_offset_reset="earliest"
        )
        async with consumer:
            messages = [await consumer.getone() for _ in values]
            await consumer.commit()
            assert await consumer.committed(TopicPartition("t", 0)) == 500
        assert [(message.offset, message.value, message.key, message.headers) for message in messages] == [
            (offset, value, b"k", (("h", b"1"),)) for offset, value in enumerate(values)
        ]
        admin = AIOKafkaAdminClient(bootstrap_servers=endpoint.bound.kafka)
        await admin.start()
        assert [name for name, *_ in await admin.list_consumer_groups()] == ["g"]
        await admin.close()

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
    assert endpoint.log.topic("t").cursors.offsets() == {"g": 500}


def test_group_member_takes_over_after_a_close(endpoint: Running) -> None:
    async def scenario() -> None:
        await produce(endpoint, [b"0"])
        consumers = [
            AIOKafkaConsumer(
                "t",
                bootstrap_servers=endpoint.bound.kafka,
                group_id="g",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=100,
            )
            for _ in range(2)
        ]
        for member in consumers:
            await member.start()
        while sum(len(member.assignment()) for member in consumers) != 1:
            await asyncio.sleep(0.05)
        has, waits = sorted(consumers, key=lambda member: -len(member.assignment()))
        assert (await has.getone()).value == b"0"
        await has.stop()
        await produce(endpoint, [b"1"])
        assert (await waits.getone()).value == b"1"
        await waits.stop()

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


def test_commit_that_cannot_be_written_is_repeated_until_it_can(endpoint: Running) -> None:
    topic = endpoint.log.topic("t", create=True)
    topic.cursors.commit("other", 1)
    # A folder in the place of its draft: the commit's file cannot be written, as on a full disk.
    obstacle = topic.path / "cursors" / "g.cursor.tmp"
    obstacle.mkdir()

    async def scenario() -> None:
        await produce(endpoint, [b"0"])
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=endpoint.bound.kafka,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            await consumer.getone()
            asyncio.get_running_loop().call_later(0.5, obstacle.rmdir)
            await consumer.commit()

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
    assert topic.cursors.offsets() == {"g": 1, "other": 1}

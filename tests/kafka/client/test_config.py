"""Properties of producers and consumers, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.kafka import Consumer, Producer
from penstock.kafka.client.config import (
    CONSUMER_PROPERTIES,
    PRODUCER_PROPERTIES,
    BadProperty,
    consumer_config,
    consumer_names,
    producer_config,
    producer_names,
)

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_defaults_equal_those_of_the_java_library() -> None:
    sends, reads = producer_config({}), consumer_config({})
    assert (sends.large, sends.chunk_bytes, sends.request_bytes) == (False, 800_000, 1_048_576)
    assert (sends.wrap_all, sends.in_record_header, sends.timestamps) == (False, False, True)
    assert (reads.capacity, reads.expiration_gap, reads.max_tracked) == (32_000_000, 1000, 500)
    assert (reads.exception_on_dropped, reads.exception_on_reset, reads.bad_chunks_as_payload) == (False,) * 3
    assert (reads.reset, reads.auto_commit, reads.auto_commit_seconds) == ("none", True, 30.0)


def test_librdkafka_gets_its_own_properties_without_commits_and_resets() -> None:
    properties = {"large.message.enabled": "true", "linger.ms": 3, "max.request.size": "5000"}
    assert producer_config(properties).raw == {
        "linger.ms": 3,
        "message.max.bytes": 5000,
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": 65_536,
    }
    properties = {
        "group.id": "g",
        "auto.offset.reset": "latest",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5,
    }
    assert consumer_config(properties).raw == {
        "group.id": "g",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }


@pytest.mark.parametrize("enabled", ["true", "True", True])
def test_values_can_be_texts_as_in_java(enabled: Any) -> None:
    assert producer_config({"large.message.enabled": enabled}).large
    assert consumer_config({"max.tracked.messages.per.partition": "7"}).max_tracked == 7


@pytest.mark.parametrize(
    ("configured", "reset"),
    [("earliest", "earliest"), ("smallest", "earliest"), ("LATEST", "latest"), ("none", "none"), ("liclosest",) * 2],
)
def test_reset_is_read_from_its_name(configured: str, reset: str) -> None:
    assert consumer_config({"auto.offset.reset": configured}).reset == reset


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.assembler.buffer.capacity", 0),
        ("message.assembler.buffer.capacity", "many"),
        ("message.assembler.expiration.offset.gap", True),
        ("max.tracked.messages.per.partition", -1),
        ("exception.on.message.dropped", 1),
        ("auto.offset.reset", "closest"),
        ("auto.commit.interval.ms", -5),
        ("value.deserializer", "org.apache.kafka.StringDeserializer"),
    ],
)
def test_invalid_value_is_reported_with_its_property(name: str, value: Any) -> None:
    with pytest.raises(BadProperty, match=name.replace(".", r"\.")):
        consumer_config({name: value})


@pytest.mark.parametrize(
    "name", sorted(PRODUCER_PROPERTIES | CONSUMER_PROPERTIES | {"group.id", "linger.ms", "security.protocol"})
)
def test_misspelled_property_is_reported_with_the_closest_name(name: str) -> None:
    slipped = name[:-3] + name[-2:]
    of_producer = name in producer_names()
    with pytest.raises(BadProperty, match=f"unknown property '{slipped}'; did you mean '{name}'"):
        Producer({**NOWHERE, slipped: 1}) if of_producer else Consumer({**NOWHERE, "group.id": "g", slipped: 1})


def test_properties_of_the_other_client_are_refused() -> None:
    with pytest.raises(BadProperty, match=r"max\.tracked\.messages\.per\.partition"):
        Producer({**NOWHERE, "max.tracked.messages.per.partition": 5})
    with pytest.raises(BadProperty, match=r"large\.message\.enabled"):
        Consumer({**NOWHERE, "group.id": "g", "large.message.enabled": True})


def test_each_property_belongs_to_librdkafka_or_penstock() -> None:
    for name in ("on_commit", "statistics.interval.ms", *CONSUMER_PROPERTIES):
        assert name in consumer_names()
    assert "group.id" not in producer_names()

"""Partitions compared with the choices of Kafka's Java clients."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.client.plugins.java_partitioner import (
    DEFAULT_BATCH_BYTES,
    LONG_KEY_BYTES,
    DefaultPartitioner,
    RoundRobinChooser,
    RoundRobinPartitioner,
    StickyChooser,
    choose_partition,
    load_partitioner,
    murmur2,
    murmur2_all,
    partition_of,
    partitions_of,
)
from penstock.kafka.client.plugins.loading import CannotLoad

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Hashes that Kafka's own tests hold."""


@pytest.mark.parametrize(("key", "signed"), KNOWN.items())
def test_hash_of_a_key_equals_that_of_java(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % (1 << 32)
    assert partition_of(key, 7) == (signed & 0x7FFFFFFF) % 7


@given(
    st.lists(st.binary(max_size=40) | st.binary(min_size=LONG_KEY_BYTES - 2, max_size=LONG_KEY_BYTES + 6), max_size=30)
)
def test_hashes_of_a_batch_equal_those_of_single_keys(keys: list[bytes]) -> None:
    assert murmur2_all(keys).tolist() == [murmur2(key) for key in keys]


@given(st.lists(st.binary(max_size=20), max_size=30), st.integers(1, 1000))
def test_partition_is_within_the_number_of_partitions(keys: list[bytes], partitions: int) -> None:
    assert partitions_of(keys, partitions).tolist() == [partition_of(key, partitions) for key in keys]
    assert all(0 <= partition < partitions for partition in partitions_of(keys, partitions))


def test_messages_without_a_key_stick_to_a_partition_for_a_batch() -> None:
    sticky = StickyChooser(100, random.Random(1))
    seen = [sticky.next("topic", 10, 1000) for _ in range(1000)]
    runs = [seen[start : start + 10] for start in range(0, 1000, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert len({run[0] for run in runs}) > 50


def test_topic_that_lost_partitions_gets_another_partition() -> None:
    sticky = StickyChooser(100, random.Random(1))
    sticky.next("topic", 1, 1000)
    assert sticky.next("topic", 1, 1) == 0


def test_messages_without_a_key_are_spread_evenly() -> None:
    going = RoundRobinChooser(random.Random(1))
    seen = [going.next("topic", 10, 5) for _ in range(50)]
    assert set(Counter(seen).values()) == {10}
    assert all((after - before) % 5 == 1 for before, after in itertools.pairwise(seen))


def test_topics_do_not_disturb_each_other() -> None:
    going = RoundRobinChooser(random.Random(1))
    seen = [(going.next("a", 1, 3), going.next("b", 1, 3)) for _ in range(6)]
    assert all((later[0] - sooner[0]) % 3 == 1 for sooner, later in itertools.pairwise(seen))


def test_default_partitioner_uses_the_key_and_sticks_without_a_key() -> None:
    default = DefaultPartitioner()
    assert {default.partition("topic", b"foobar", b"x", 7) for _ in range(9)} == {partition_of(b"foobar", 7)}
    assert len({default.partition("topic", None, None, 1000) for _ in range(9)}) == 1
    assert len({default.partition("topic", None, bytes(DEFAULT_BATCH_BYTES), 1000) for _ in range(99)}) > 50


def test_partitioners_are_loaded_by_their_names() -> None:
    assert isinstance(load_partitioner("default", {}), DefaultPartitioner)
    round_robin = load_partitioner("round_robin", {})
    assert isinstance(round_robin, RoundRobinPartitioner)
    assert len({round_robin.partition("topic", None, b"x", 5) for _ in range(5)}) == 5


class ByFirstByte:
    """A partitioner that uses the value's first byte."""

    def configure(self, config: Any) -> None:
        self.shift = config.get("own.shift", 0)

    def partition(self, topic: str, key: bytes | None, value: Any, partitions: int) -> int:
        return int(value[0]) + self.shift


def test_custom_partitioner_is_configured_and_used() -> None:
    partitioner = load_partitioner("tests.kafka.client.plugins.test_java_partitioner:ByFirstByte", {"own.shift": 2})
    assert choose_partition(partitioner, "topic", None, b"\x01", 4) == 3
    with pytest.raises(ValueError, match="chose 7, but 'topic' has 4 partitions"):
        choose_partition(partitioner, "topic", None, b"\x05", 4)


def test_object_without_partition_method_is_refused() -> None:
    with pytest.raises(CannotLoad, match=r"partitioner\.class: .* has no partition\(\)"):
        load_partitioner("builtins:dict", {})

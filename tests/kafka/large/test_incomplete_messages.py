"""The buffer of incomplete messages: each of its rules, and its bounds."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.errors import InvalidChunk, MessageDropped
from penstock.kafka.large import incomplete_messages as pool_module
from penstock.kafka.large.chunks import Chunk
from penstock.kafka.large.incomplete_messages import NOTHING_PENDING, BufferPool
from tests.kafka.kafka_vectors import TP, Key, uid

OTHER = ("topic", 1)


def _pool(capacity: int = 1000, gap: int = 100, raises: bool = False) -> BufferPool:
    return BufferPool(capacity, gap, raises)


def _add(pool: BufferPool, offset: int, number: int, sequence: int, *, of: Key = TP, count: int = 3) -> bytes | None:
    return pool.add(of, offset, Chunk(uid(number), sequence, count, 10 * count, bytes([sequence]) * 10)).message


# LargeMessageTest


def test_incomplete_message() -> None:
    pool = _pool()
    assert pool.add(TP, 0, Chunk(uid(1), 0, 2, 15, b"x" * 5)).bytes_added == 5
    assert pool.used == 5
    assert pool.add(TP, 1, Chunk(uid(1), 1, 2, 15, b"y" * 10)).message == b"x" * 5 + b"y" * 10
    assert pool.used == 0


def test_zero_length_chunk() -> None:
    with pytest.raises(InvalidChunk) as caught:
        _pool().add(TP, 0, Chunk(uid(1), 0, 2, 15, b""))
    assert caught.value.reason == "empty"


def test_chunk_total_size_greater_than_message_size() -> None:
    pool = _pool()
    pool.add(TP, 0, Chunk(uid(1), 0, 2, 15, b"x" * 10))
    with pytest.raises(InvalidChunk) as caught:
        pool.add(TP, 1, Chunk(uid(1), 1, 2, 15, b"x" * 10))
    assert caught.value.reason == "excess"


def test_chunk_total_size_smaller_than_message_size() -> None:
    pool = _pool(gap=10)
    pool.add(TP, 0, Chunk(uid(1), 0, 2, 20, b"x" * 10))
    with pytest.raises(InvalidChunk) as caught:
        pool.add(TP, 1, Chunk(uid(1), 1, 2, 20, b"x" * 5))
    assert caught.value.reason == "short"
    assert (len(pool), pool.used, pool.safe_offset(TP, 2)) == (1, 10, 0)
    assert pool.add(TP, 2, Chunk(uid(1), 1, 2, 20, b"x" * 10)).bytes_added == 0
    assert pool.safe_offset(TP, 11) == NOTHING_PENDING
    assert pool.used == 0  # where the original is left with -5


def test_conflict_uuid() -> None:
    pool = _pool()
    _add(pool, 0, 1, 0)
    with pytest.raises(InvalidChunk, match="Detected UUID conflict"):
        pool.add(TP, 1, Chunk(uid(1), 1, 4, 30, b"x" * 10))


# LargeMessageBufferPoolTest


def test_basic_assemble() -> None:
    pool = _pool()
    for offset, (number, sequence) in enumerate([(0, 0), (1, 0), (0, 2), (1, 1), (1, 2)]):
        assembled = _add(pool, offset, number, sequence)
    assert assembled == b"\0" * 10 + b"\1" * 10 + b"\2" * 10
    assert pool.safe_offsets() == {TP: 0}
    assert _add(pool, 5, 0, 1) is not None
    assert (len(pool), pool.used, pool.safe_offsets()) == (0, 0, {})


def test_exception_on_message_dropped() -> None:
    pool = _pool(capacity=40, raises=True)
    _add(pool, 0, 0, 0)
    _add(pool, 1, 0, 1)
    _add(pool, 2, 1, 0)
    _add(pool, 3, 1, 1)
    assert pool.used == 40
    with pytest.raises(MessageDropped):
        pool.add(TP, 4, Chunk(uid(2), 0, 3, 30, b"x"))
    assert pool.used == 21
    assert pool.counts["evicted"] == 1


def test_complete_message_is_dropped_while_the_buffer_is_too_full() -> None:
    pool = _pool(capacity=20, raises=True)
    for number in range(3):
        pool.add(TP, number, Chunk(uid(number), 0, 2, 11, b"x"))
    for number in (3, 4):
        with pytest.raises(MessageDropped):
            pool.add(TP, number, Chunk(uid(number), 0, 2, 30, b"x" * 19))
    assert pool.used == 39
    with pytest.raises(MessageDropped):
        pool.add(TP, 5, Chunk(uid(2), 1, 2, 11, b"x" * 10))
    assert (pool.counts["assembled"], pool.counts["evicted"], pool.used) == (0, 4, 19)


def test_evict_the_only_message() -> None:
    pool = _pool(capacity=15)
    _add(pool, 0, 0, 0)
    assert _add(pool, 1, 0, 1) is None
    assert (len(pool), pool.used) == (0, 0)


def test_eviction_and_safe_offsets() -> None:
    pool = _pool(capacity=30)
    for number in range(3):
        _add(pool, number, number, 0)
    assert pool.safe_offsets() == {TP: 0}
    _add(pool, 3, 1, 1)
    assert pool.safe_offsets() == {TP: 1}
    _add(pool, 4, 2, 1)
    assert pool.safe_offsets() == {TP: 2}
    assert _add(pool, 5, 2, 2) is not None
    assert (pool.safe_offsets(), pool.safe_offset(TP, 6)) == ({}, NOTHING_PENDING)


def test_message_larger_than_the_buffer_is_returned_if_its_last_chunk_completes_it() -> None:
    pool = _pool(capacity=25)
    _add(pool, 0, 0, 0)
    _add(pool, 1, 0, 1)
    assert len(_add(pool, 2, 0, 2) or b"") == 30


@pytest.mark.parametrize("sequence", [-1, 3])
def test_sequence_number_out_of_range(sequence: int) -> None:
    with pytest.raises(InvalidChunk, match="should fall between"):
        _pool().add(TP, 0, Chunk(uid(0), sequence, 3, 30, b"x"))


def test_null_message_id() -> None:
    with pytest.raises(InvalidChunk, match="Message Id can not be null"):
        _pool().add(TP, 0, Chunk(None, 0, 3, 30, b"x"))  # type: ignore[arg-type]


def test_chunk_size_too_large() -> None:
    pool = _pool(capacity=10)
    with pytest.raises(InvalidChunk) as caught:
        _add(pool, 0, 0, 0)
    assert (caught.value.reason, len(pool)) == ("capacity", 0)


def test_out_of_order_chunk() -> None:
    pool = _pool()
    _add(pool, 5, 0, 0)
    with pytest.raises(InvalidChunk, match="Out of order segment offsets"):
        _add(pool, 4, 0, 1)


def test_clear() -> None:
    pool = _pool()
    _add(pool, 0, 0, 0)
    _add(pool, 0, 1, 0, of=OTHER)
    pool.clear(TP)
    assert (len(pool), pool.used, pool.safe_offsets()) == (1, 10, {OTHER: 0})
    pool.clear()
    assert (len(pool), pool.used, pool.safe_offsets()) == (0, 0, {})
    assert _add(pool, 0, 1, 1, count=3) is None


# QueuedMapTest: the order in which messages are evicted


def test_eldest_message_is_the_first_added() -> None:
    pool = _pool(capacity=20)
    for offset, number in enumerate((7, 3, 5)):
        _add(pool, offset, number, 0)
    assert pool.safe_offsets() == {TP: 1}


def test_removal_from_the_middle_preserves_the_order() -> None:
    pool = _pool(capacity=50)
    for offset, (number, sequence) in enumerate([(0, 0), (1, 0), (2, 0), (1, 1), (1, 2), (3, 0)]):
        _add(pool, offset, number, sequence)
    assert (pool.safe_offsets(), pool.used) == ({TP: 0}, 30)
    for offset, number in enumerate((4, 5, 6), start=6):
        _add(pool, offset, number, 0)
    assert pool.safe_offsets() == {TP: 2}


def test_message_added_again_is_the_youngest() -> None:
    pool = _pool(capacity=20)
    for offset, number in enumerate((0, 1, 2, 0)):
        _add(pool, offset, number, 0)
    assert pool.safe_offsets() == {TP: 2}
    _add(pool, 4, 3, 0)
    assert pool.safe_offsets() == {TP: 3}


# What is better than the original


def test_repeated_chunk_of_a_complete_message_does_not_hold_the_safe_offset() -> None:
    pool = _pool(gap=10)
    for sequence in range(3):
        _add(pool, sequence, 0, sequence)
    assert _add(pool, 3, 0, 2) is None
    assert (pool.safe_offset(TP, 4), pool.counts["duplicate"]) == (NOTHING_PENDING, 1)
    _add(pool, 20, 0, 2)
    assert pool.safe_offset(TP, 21) == 20  # beyond the gap it is remembered no longer
    assert _add(pool, 0, 0, 2, of=OTHER) is None
    assert pool.safe_offset(OTHER, 1) == 0  # in another partition it is another message


def test_second_message_with_the_same_id_is_assembled() -> None:
    pool = _pool()
    for offset, sequence in enumerate((0, 1)):
        _add(pool, offset, 0, sequence, count=2)
    for offset, sequence in enumerate((0, 1, 2), start=2):
        assembled = _add(pool, offset, 0, sequence, count=3)
    assert len(assembled or b"") == 30


def test_number_of_remembered_ids_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_COMPLETED_IDS", 5)
    pool = _pool(gap=1 << 40)
    for number in range(20):
        for sequence in range(2):
            _add(pool, 2 * number + sequence, number, sequence, count=2)
    assert len(pool._completed[TP]) == 5


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200), st.binary(min_size=1, max_size=30)), max_size=200))
def test_buffer_stays_within_both_bounds(chunks: list[tuple[int, int, bytes]]) -> None:
    pool = BufferPool(100, 20)
    for offset, (number, sequence, part) in enumerate(chunks):
        pool.add(TP, offset, Chunk(uid(number), sequence, 201, 1 << 30, part))
        assert pool.used <= 100
        assert pool.chunks <= 21
        assert pool.safe_offset(TP, offset) >= offset - 20


def test_header_does_not_decide_about_memory() -> None:
    pool = _pool()
    tracemalloc.start()
    try:
        for number in range(5):
            pool.add(TP, number, Chunk(uid(number), 0, (1 << 31) - 1, (1 << 31) - 1, b"x"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_message_takes_at_most_twice_its_size() -> None:
    size, count = 40_000_000, 50
    step = size // count
    pool = BufferPool(size + 1, 1000)
    tracemalloc.start()
    try:
        for sequence in range(count):
            value = bytes(33 + step)
            assembled = pool.add(TP, sequence, Chunk(uid(0), sequence, count, size, memoryview(value)[33:])).message
            del value
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(assembled or b"") == size
    assert peak < 2.02 * size

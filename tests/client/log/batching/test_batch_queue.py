"""The queue of a batcher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.log.batching.batch_queue import MAX_BYTES, WAITING, BatchQueue
from penstock.slogd.slogd_pb2 import LogEntry


@given(st.lists(st.integers(0, MAX_BYTES // 2 * 3), max_size=6), st.integers(1, 4))
def test_batches_preserve_the_order_within_their_bounds(sizes: list[int], most: int) -> None:
    waiting: BatchQueue[int] = BatchQueue(most)
    for number, size in enumerate(sizes):
        waiting.add(LogEntry(raw_bytes=b"x" * size), number)
    numbers = []
    while batch := waiting.cut():
        assert len(batch) == 1 or (len(batch) <= most and sum(entry.size for entry in batch) <= MAX_BYTES)
        numbers += [entry.future for entry in batch]
    assert numbers == list(range(len(sizes)))
    assert (len(waiting), waiting.is_full, waiting.has_room) == (0, False, True)


@pytest.mark.survives("client", "flood")
def test_queue_is_bounded_and_is_emptied_after_a_failure() -> None:
    waiting: BatchQueue[int] = BatchQueue(2)
    for number in range(2 * WAITING):
        assert waiting.has_room
        waiting.add(LogEntry(raw_bytes=b"x"), number)
    assert not waiting.has_room
    assert waiting.is_full
    assert [entry.future for entry in waiting.clear()] == list(range(2 * WAITING))
    assert (len(waiting), waiting.has_room) == (0, True)

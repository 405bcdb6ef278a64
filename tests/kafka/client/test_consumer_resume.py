"""No message is lost or delivered twice, for any log and any point at which a consumer stops."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.large.chunks import encode_chunk
from tests.kafka.kafka_vectors import TP, uid
from tests.kafka.stand_in import Broker, Consumer, offsets

MESSAGES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=15)


def _interleaved(messages: list[tuple[int, int]], dice: Any) -> tuple[Broker, int]:
    """Return a log of messages in segments, mixed as several producers mix them."""
    waiting = [
        [
            b"plain%d" % number if count == 1 else encode_chunk(uid(number), sequence, count, count * 3, b"abc")
            for sequence in range(count)
        ]
        for number, (count, _) in enumerate(messages)
    ]
    broker = Broker()
    total = len(waiting)
    while waiting:
        chosen = dice.randrange(min(len(waiting), 4))
        broker.write(waiting[chosen].pop(0))
        waiting = [parts for parts in waiting if parts]
    return broker, total


@settings(max_examples=200)
@given(MESSAGES, st.randoms(use_true_random=False), st.lists(st.integers(1, 6), min_size=1, max_size=30))
def test_commit_and_resume(messages: list[tuple[int, int]], dice: Any, polls: list[int]) -> None:
    """No message is lost or delivered twice, wherever a consumer commits and dies and another one resumes."""
    broker, total = _interleaved(messages, dice)
    seen: list[int] = []
    consumer = Consumer(broker)
    for at_once in itertools.chain(polls, itertools.repeat(50, 3)):
        seen += offsets(consumer.poll(at_once))
        consumer.commit()
        if dice.random() < 0.5:
            consumer = Consumer(broker)
    assert len(seen) == len(set(seen)) == total
    # what was read again of messages delivered before may hold the safe offset back, never the user's own
    assert consumer.state.committed(TP) == (len(broker.records[TP]), "")


@settings(max_examples=200)
@given(MESSAGES, st.randoms(use_true_random=False))
def test_commit_of_a_delivered_offset_loses_no_later_message(messages: Any, dice: Any) -> None:
    broker, _ = _interleaved(messages, dice)
    first = Consumer(broker)
    delivered = offsets(first.poll())
    offset = dice.choice(delivered)
    first.commit_offset(offset + 1)
    resumed = Consumer(broker)
    assert offsets(resumed.poll()) == [position for position in delivered if position > offset]
    first.seek(offset)
    assert offsets(first.poll()) == [position for position in delivered if position >= offset]


@settings(max_examples=100)
@given(MESSAGES, st.randoms(use_true_random=False), st.integers(0, 30))
def test_rebalance_neither_loses_nor_repeats_messages(messages: Any, dice: Any, at_once: int) -> None:
    broker, total = _interleaved(messages, dice)
    first, second = Consumer(broker), Consumer(broker)
    seen = offsets(first.poll(at_once))
    first.commit()
    first.state.revoked([TP])
    first.state.assigned([])
    second.raw[TP] = broker.committed[TP].offset if TP in broker.committed else 0
    seen += offsets(second.poll(at_once))
    second.commit()
    second.state.revoked([TP])
    second.state.assigned([])
    first.raw[TP] = broker.committed[TP].offset if TP in broker.committed else 0
    seen += offsets(first.poll())
    assert len(seen) == len(set(seen)) == total

"""Requests to a broker with retries: a broker that is starting, or a new topic, answers after a moment. Reads of
consumers that do not wait for full batches, and headers of any bytes.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.kafka.large.safe_offsets import TopicAndPartition

ANSWER_TIMEOUT_S = 30.0
"""Limit: time for an answer, retries included."""
RETRY_INTERVAL_S = 0.1
TRANSIENT_ERRORS = frozenset(
    (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._WAIT_COORD,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,
    )
)
"""Errors of a broker that is starting, or has just handed over leadership."""
LEADER_CHANGES = frozenset(
    (
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    )
)
"""Errors of a partition whose leader has just changed, or that was just created."""
NO_SUCH_TOPIC = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC))
"""Errors of a topic that does not exist, from a broker or from the client."""
NEW_TOPIC_ERRORS = TRANSIENT_ERRORS | NO_SUCH_TOPIC | {KafkaError._UNKNOWN_PARTITION}
"""Transient errors, and errors of a topic created a moment ago."""
NOT_UTF_8 = "\ufffd"
"""Name of a header whose bytes are not UTF-8: the client does not give them."""
T = TypeVar("T")


def retry_transient(
    request: Callable[[float], T], timeout_s: float = ANSWER_TIMEOUT_S, transient: frozenset[int] = TRANSIENT_ERRORS
) -> T:
    """Return ``request(remaining seconds)``, repeated while it raises an error of ``transient``. Raises
    KafkaException.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return request(max(0.1, deadline - time.monotonic()))
        except KafkaException as error:
            if error.args[0].code() not in transient or time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_INTERVAL_S)


def partition_numbers(
    client: Any, topic: str, timeout_s: float = ANSWER_TIMEOUT_S, *, is_new: bool = False
) -> list[int]:
    """Return the partitions of a topic, in order. ``is_new``: the topic was created just now.

    ``client`` is any client of confluent-kafka. Raises KafkaException, also for a missing topic.
    """

    def request(remaining_s: float) -> list[int]:
        metadata = client.list_topics(topic, remaining_s).topics[topic]
        if metadata.error:
            raise KafkaException(metadata.error)
        return sorted(metadata.partitions)

    return retry_transient(request, timeout_s, NEW_TOPIC_ERRORS if is_new else TRANSIENT_ERRORS)


def consume_available(client: Consumer, limit: int, timeout_s: float) -> list[Message]:
    """Return the queued records and events of a consumer, at most ``limit``; if there are none, wait ``timeout_s``
    for the first.
    """
    # ``consume(limit, timeout)`` waits for ``limit`` records, so the end of a partition would cost the whole timeout.
    first = client.consume(1, timeout_s)
    return [*first, *client.consume(limit - 1, 0)] if first else []


def headers_of(messages: Sequence[Message]) -> list[Any]:
    """Return the headers of each message; None for one without any. A name that is not UTF-8 becomes ``NOT_UTF_8``."""
    # Workaround: ``map`` checks each call. A loop that CPython has specialized does not, and the error that the client
    # sets without failing ends a later statement.
    try:
        return list(map(Message.headers, messages))
    except SystemError:
        return list(map(_replace_names, messages))


def repair_headers(messages: Sequence[Message]) -> None:
    """Give each record headers that can be read: a name that is not UTF-8 becomes ``NOT_UTF_8``."""
    # Fast path: the client keeps the headers that it returned once, so that their next use is free.
    for message, headers in zip(messages, headers_of(messages), strict=True):
        if headers:
            message.set_headers(headers)


def _replace_names(message: Message) -> list[Any] | None:
    # Workaround: for such a name confluent-kafka (2.x) raises SystemError once, and then returns a tuple without its
    # first item. To read that item would end the process; the garbage collector's view names the other one.
    with contextlib.suppress(SystemError):
        list(map(Message.headers, [message]))
    pairs: Any = message.headers()
    return [
        pair if len(items := gc.get_referents(pair)) == 2 else (NOT_UTF_8, items[0]) for pair in pairs or ()
    ] or None


def end_offset(client: Any, partition: TopicAndPartition, timeout_s: float = ANSWER_TIMEOUT_S) -> int:
    """Return the offset after the last record of a partition that the consumer may see. Raises KafkaException."""
    return int(
        retry_transient(
            lambda remaining_s: client.get_watermark_offsets(TopicPartition(*partition), timeout=remaining_s), timeout_s
        )[1]
    )

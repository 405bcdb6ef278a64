"""A request with its sender, the kinds of answers, and Kafka's codes for errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.kafka.errors import BadRecords, BatchTooLarge, UnknownCodec
from penstock.log import (
    Appended,
    InvalidTopicName,
    LogClosed,
    LogFull,
    MessageTooLarge,
    OutOfSequence,
    TooManyTopics,
    UnknownTopic,
    WriteFailed,
)
from penstock.server.auth.rights import Principal
from penstock.server.kafka.errors import BadChecksum, InvalidTimestamp
from penstock.server.kafka.schema.messages import Parts, Request, Values
from penstock.slogd.errors import (
    AlreadyExists,
    BadRequest,
    Damaged,
    Exhausted,
    NoSuchTopic,
    NotAllowed,
    Stopping,
)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Call:
    """A request and its client. ``message`` is kio's class; ``host`` is the client's, ``address`` ours as clients
    see it.
    """

    version: int
    message: Any
    caller: Principal
    client: str
    host: str
    address: Address


@dataclass(frozen=True, slots=True)
class DeferredAnswer:
    """An answer that is awaited while the next requests are read.

    Called when all earlier answers are sent: ``ready`` may return it at once, otherwise ``values`` is awaited.
    """

    values: Callable[[], Awaitable[Values]]
    ready: Callable[[], Values | None] = lambda: None


@dataclass(frozen=True, slots=True)
class AnswerOnceStored:
    """An answer that exists once all of ``stored`` are done; ``frame`` builds it, or no parts if the client wants
    none.
    """

    stored: Sequence[Future[Appended]]
    frame: Callable[[Request], Parts]


Answer = Values | AnswerOnceStored | DeferredAnswer
Handler = Callable[[Call], Awaitable[Answer]]
QuickHandler = Callable[[Call], Answer | None]
"""Answers at once; returns None, with nothing done, if the answer must be awaited."""

_CODES: dict[type[PenstockError], ErrorCode] = {
    NoSuchTopic: ErrorCode.unknown_topic_or_partition,
    UnknownTopic: ErrorCode.unknown_topic_or_partition,
    NotAllowed: ErrorCode.topic_authorization_failed,
    BadRequest: ErrorCode.invalid_topic_exception,
    InvalidTopicName: ErrorCode.invalid_topic_exception,
    AlreadyExists: ErrorCode.topic_already_exists,
    Exhausted: ErrorCode.policy_violation,
    TooManyTopics: ErrorCode.policy_violation,
    Damaged: ErrorCode.kafka_storage_error,
    Stopping: ErrorCode.not_leader_or_follower,
    LogClosed: ErrorCode.not_leader_or_follower,
    LogFull: ErrorCode.kafka_storage_error,
    WriteFailed: ErrorCode.kafka_storage_error,
    MessageTooLarge: ErrorCode.message_too_large,
    OutOfSequence: ErrorCode.out_of_order_sequence_number,
    BatchTooLarge: ErrorCode.message_too_large,
    BadChecksum: ErrorCode.corrupt_message,
    UnknownCodec: ErrorCode.unsupported_compression_type,
    InvalidTimestamp: ErrorCode.invalid_timestamp,
    BadRecords: ErrorCode.invalid_record,
}


def code_of(error: PenstockError) -> ErrorCode:
    """Return Kafka's code for an error."""
    # The API has one error for a full disk and for limits of topics; its cause tells which of them a client may retry.
    kinds = (*type(error.__cause__).__mro__, *type(error).__mro__)
    return next((_CODES[kind] for kind in kinds if kind in _CODES), ErrorCode.unknown_server_error)

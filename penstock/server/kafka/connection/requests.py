"""Requests of one connection.

Fast path: requests of a producer differ only in their number and records, so kio parses the first one, and later ones
are compared with it as bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.records.decode import QUICK_BYTES
from penstock.server.kafka.schema.messages import Api, Request, parse
from penstock.server.kafka.schema.reading import FrameReader

MAX_AT_ONCE_BYTES: dict[int, int] = {Api.PRODUCE: QUICK_BYTES + (8 << 10), Api.FETCH: 8 << 10}
"""Limit: size of a request that is parsed and started on the event loop, without a task: it must not delay others."""
_CORRELATION_ID = slice(4, 8)


def may_start_at_once(frame: memoryview) -> bool:
    """Return whether a frame is a small Produce or Fetch, the requests that clients send in large numbers."""
    return len(frame) <= MAX_AT_ONCE_BYTES.get(int.from_bytes(frame[:2], "big"), 0)


class Requests:
    """Parser of one connection's requests, with the template of its last Produce."""

    def __init__(self) -> None:
        self._template: _ProduceTemplate | None = None

    def parse(self, frame: memoryview) -> Request:
        """Parse a frame without its length. Raises BadFrame."""
        if self._template is not None and (match := self._template.match(frame)) is not None:
            return match
        request = parse(frame)
        if request.api is Api.PRODUCE:
            self._template = _template(frame, request)
        return request


@dataclass(frozen=True, slots=True)
class _ProduceTemplate:
    """A Produce of one batch without its number and records: ``head`` and ``tail`` are the bytes around both."""

    request: Request
    api_and_version: bytes
    head: bytes
    tail: bytes
    compact: bool

    def match(self, frame: memoryview) -> Request | None:
        """Return the request if ``frame`` differs only in number and records, else None."""
        begin = _CORRELATION_ID.stop + len(self.head)
        if frame[: _CORRELATION_ID.start] != self.api_and_version or frame[_CORRELATION_ID.stop : begin] != self.head:
            return None
        # The length of the records may have another width in each frame, so it is read, not compared.
        reader = FrameReader(frame, begin)
        try:
            size = reader.length(compact=self.compact, form=">i")
        except BadFrame:
            return None
        end = reader.position + max(size, 0)
        if size < 0 or frame[end:] != self.tail:
            return None
        request, (correlation,) = self.request, struct.unpack(">i", frame[_CORRELATION_ID])
        message = _with_records(request.message, frame[reader.position : end])
        return Request(request.api, request.version, correlation, request.client, message)


def _with_records(message: Any, records: memoryview) -> Any:
    topic = message.topic_data[0]
    partition = topic.partition_data[0]
    partition = type(partition)(index=partition.index, records=records)
    topic = type(topic)(name=topic.name, partition_data=(partition,))
    other_fields = {"acks": message.acks, "timeout": message.timeout}
    return type(message)(transactional_id=message.transactional_id, topic_data=(topic,), **other_fields)


def _template(frame: memoryview, request: Request) -> _ProduceTemplate | None:
    """Return the template of a Produce; None unless it has exactly one batch."""
    batches = [partition.records for topic in request.message.topic_data for partition in topic.partition_data]
    if len(batches) != 1 or batches[0] is None:
        return None
    begin, compact = request.record_positions[0], bool(request.message.__flexible__)
    # KIP-482: compact lengths are varints of the length plus one; others have 32 bits.
    size = _width(len(batches[0]) + 1) if compact else 4
    head = bytes(frame[_CORRELATION_ID.stop : begin - size])
    tail = bytes(frame[begin + len(batches[0]) :])
    return _ProduceTemplate(request, bytes(frame[: _CORRELATION_ID.start]), head, tail, compact)


def _width(number: int) -> int:
    """Return the bytes of a number as varint."""
    return max(1, -(-number.bit_length() // 7))

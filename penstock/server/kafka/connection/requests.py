"""The requests of one connection. A producer's are alike but for their numbers and records: kio reads the first one."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from penstock.server.kafka.errors import BadFrame
from penstock.server.kafka.records.decode import QUICK_BYTES
from penstock.server.kafka.schema.messages import Api, Request, parse
from penstock.server.kafka.schema.reading import Octets

LARGEST_AT_ONCE: dict[int, int] = {Api.PRODUCE: QUICK_BYTES + (8 << 10), Api.FETCH: 8 << 10}
"""Bytes of a request that may be begun as soon as it is there."""
_CORRELATION = slice(4, 8)


def begun_at_once(frame: memoryview) -> bool:
    """Whether a frame is one of a producer or consumer, which sends many, and takes no long time to read."""
    return len(frame) <= LARGEST_AT_ONCE.get(int.from_bytes(frame[:2], "big"), 0)


class Requests:
    """Parses them, one after the other."""

    def __init__(self) -> None:
        self._form: _Form | None = None

    def parse(self, frame: memoryview) -> Request:
        """The request in a frame, without its length. Raises BadFrame."""
        if self._form is not None and (again := self._form.again(frame)) is not None:
            return again
        request = parse(frame)
        if request.api is Api.PRODUCE:
            self._form = _form(frame, request)
        return request


@dataclass(frozen=True, slots=True)
class _Form:
    """A Produce of one batch, without its number and its records: ``head`` and ``tail`` stand around both."""

    request: Request
    kind: bytes
    head: bytes
    tail: bytes
    compact: bool

    def again(self, frame: memoryview) -> Request | None:
        """The request, where ``frame`` has this form."""
        begin = _CORRELATION.stop + len(self.head)
        if frame[: _CORRELATION.start] != self.kind or frame[_CORRELATION.stop : begin] != self.head:
            return None
        octets = Octets(frame, begin)
        try:
            size = octets.length(compact=self.compact, form=">i")
        except BadFrame:
            return None
        end = octets.at + max(size, 0)
        if size < 0 or frame[end:] != self.tail:
            return None
        known, (correlation,) = self.request, struct.unpack(">i", frame[_CORRELATION])
        message = _with_records(known.message, frame[octets.at : end])
        return Request(known.api, known.version, correlation, known.client, message)


def _with_records(message: Any, records: memoryview) -> Any:
    topic = message.topic_data[0]
    part = topic.partition_data[0]
    part = type(part)(index=part.index, records=records)
    topic = type(topic)(name=topic.name, partition_data=(part,))
    known = {"acks": message.acks, "timeout": message.timeout}
    return type(message)(transactional_id=message.transactional_id, topic_data=(topic,), **known)


def _form(frame: memoryview, request: Request) -> _Form | None:
    """The form of a Produce; None where it has another number of batches than one."""
    batches = [part.records for topic in request.message.topic_data for part in topic.partition_data]
    if len(batches) != 1 or batches[0] is None:
        return None
    begin, compact = request.places[0], bool(request.message.__flexible__)
    size = _width(len(batches[0]) + 1) if compact else 4
    head = bytes(frame[_CORRELATION.stop : begin - size])
    tail = bytes(frame[begin + len(batches[0]) :])
    return _Form(request, bytes(frame[: _CORRELATION.start]), head, tail, compact)


def _width(number: int) -> int:
    """Bytes of a varint."""
    return max(1, -(-number.bit_length() // 7))

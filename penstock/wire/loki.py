"""The door for Loki's push: streams of lines with labels, in JSON, or in protobuf packed with snappy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from penstock.wire.protobuf import BYTES, VARINT, Malformed, Message, Values
from penstock.wire.requests import JSON, MESSAGES, SYNTAX, Answer, Messages, Received, Refused, Request, parsed, text_of
from penstock.wire.sender_text import text

_PUSH = ("/loki/api/v1/push", "/api/prom/push")
_READY = "/ready"
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_:.]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
MOST_PACKED = 32
"""By how much snappy packs at most (64 bytes into 3 of a copy, and what the block's own rules add)."""


class LokiDoor:
    """Loki's push."""

    codec = "loki"
    inner_growth = MOST_PACKED

    def takes(self, method: str, path: str) -> bool:
        """The two paths of pushes, and ``/ready``."""
        return (method == "POST" and path in _PUSH) or (method == "GET" and path == _READY)

    def receive(self, request: Request) -> Received | Answer:
        """Raises Refused."""
        if request.path == _READY:
            return Answer(200, b"ready\n", "text/plain")
        messages = Messages(request)
        if request.content_type == JSON:
            _take_json(request.body, messages)
        else:
            _take_protobuf(request, messages)
        if not messages.refused:
            return messages.received(Answer(204))
        told = f"{messages.refused.total()} lines are too large, the others were taken\n"
        return messages.received(Answer(400, told.encode(), "text/plain"))  # as Loki has it: these do not come again

    def refusal(self, why: Refused, request: Request) -> Answer:
        """A line of text; its clients try 429 and those from 500 on again."""
        headers = {"retry-after": "1"} if why.may_come_again else {}
        return Answer(why.status, f"{why}\n".encode(), "text/plain; charset=utf-8", headers)


def _take_json(data: bytes, messages: Messages) -> None:
    document = parsed(data)
    try:
        for stream in document["streams"]:
            labels = {f"labels.{name}": text_of(value) for name, value in stream["stream"].items()}
            for when, line, *more in stream["values"]:
                said = {"time": str(int(when)), **labels}
                for name, value in (more[0] if more else {}).items():
                    said[f"metadata.{name}"] = text_of(value)
                messages.add(line.encode(), said)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, Refused) and error.reason == MESSAGES:
            raise
        raise Refused(400, SYNTAX, f"the body is no push: {error!r}") from None


def _take_protobuf(request: Request, messages: Messages) -> None:
    """PushRequest: streams of labels and entries of a time, a line and further pairs."""
    try:
        message = Message(_unpacked(request))
        streams = message.whole().of(1, BYTES)
        fields = message.fields(streams.begin, streams.end)
        labels = [_labels(each) for each in _by_owner(message, fields.of(1, BYTES), len(streams.owner), b"")]
        entries = fields.of(2, BYTES).in_order()
        inside = message.fields(entries.begin, entries.end)
        count = len(entries.owner)
        lines = _by_owner(message, inside.of(2, BYTES), count, b"")
        times = _times(message, inside.of(1, BYTES), count)
        pairs = _pairs(message, inside.of(3, BYTES), count)
    except Malformed as error:
        raise Refused(400, SYNTAX, f"the body is no push: {error}") from None
    for owner, line, when, more in zip(entries.owner.tolist(), lines, times, pairs, strict=True):
        messages.add(line, {"time": str(when), **labels[owner], **more})


def _unpacked(request: Request) -> bytes:
    """The body without snappy, which says first how much that is. Raises Refused and Malformed."""
    data, size, shift = request.body, 0, 0
    for octet in data[:5]:
        size |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    if size > min(request.largest, MOST_PACKED * len(data)):
        raise Refused(413, "oversize", f"the body says that it has {size} bytes unpacked")
    try:
        return bytes(pa.decompress(data, decompressed_size=size, codec="snappy", asbytes=True)) if size else b""
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Malformed(f"it is not packed with snappy: {error}") from None


def _by_owner(message: Message, values: Values, count: int, absent: bytes) -> list[bytes]:
    last = values.last(count)
    begins, ends = values.begin.tolist(), values.end.tolist()
    return [message.data[begins[at] : ends[at]] if at >= 0 else absent for at in last.tolist()]


def _times(message: Message, stamps: Values, count: int) -> list[int]:
    """Nanoseconds since the epoch."""
    fields = message.fields(stamps.begin, stamps.end)
    whole = np.zeros(len(stamps.owner) + 1, np.int64)
    for number, factor in ((1, 1_000_000_000), (2, 1)):
        said = fields.of(number, VARINT)
        whole[said.owner] += said.value.view(np.int64) * factor
    found: list[int] = whole[stamps.last(count)].tolist()
    return found


def _pairs(message: Message, values: Values, count: int) -> list[dict[str, str]]:
    """The further pairs of each entry."""
    found: list[dict[str, str]] = [{} for _ in range(count)]
    fields = message.fields(values.begin, values.end)
    names, texts = (_by_owner(message, fields.of(number, BYTES), len(values.owner), b"") for number in (1, 2))
    for owner, name, value in zip(values.owner.tolist(), names, texts, strict=True):
        found[owner][f"metadata.{text(name)}"] = text(value)
    return found


def _labels(data: bytes) -> Mapping[str, str]:
    """``{job="app", level="info"}`` as annotations. Raises Malformed."""
    return {f"labels.{name}": value for name, value in _named(text(data).strip())}


def _named(said: str) -> Iterator[tuple[str, str]]:
    if not said.startswith("{") or not said.endswith("}"):
        raise Malformed("labels stand in braces")
    at, inside = 0, said[1:-1].strip()
    while at < len(inside):
        found = _LABEL.match(inside, at)
        if found is None:
            raise Malformed('labels are like {job="app"}')
        yield found[1], _ESCAPE.sub(lambda one: _ESCAPES.get(one[1], one[1]), found[2])
        at = found.end()

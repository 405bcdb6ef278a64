"""Loki's push: streams of lines with labels, in JSON, or in protobuf compressed with snappy.

Invariant: a bad entry or bad labels refuse only the entries concerned; the answer names the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from penstock.wire.json_text import Foreign, Members, NotJson, Number, exact, readable, text_of_exact
from penstock.wire.protobuf import BYTES, VARINT, Malformed, Message, TooManyFields, Values, check_field_count
from penstock.wire.requests import (
    JSON,
    OVERSIZE,
    SYNTAX,
    Answer,
    Messages,
    Received,
    Refused,
    Request,
    SharedAnnotations,
    check_message_count,
    check_value_count,
    join_repeated,
)
from penstock.wire.sender_text import text
from penstock.wire.unpacking import MAX_SNAPPY_RATIO, Bomb, NotPacked, snappy_block

_PUSH = ("/loki/api/v1/push", "/api/prom/push")
_READY = "/ready"
_LABEL = re.compile(
    r"\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_:.]*)\s*=\s*"
    r"""(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|`(?P<raw>[^`]*)`)\s*(?:,|$)"""
)
"""A label in the quotes of Prometheus; text in backquotes has no escapes."""
_EPOCH = datetime.fromtimestamp(0, UTC)
_TIME = re.compile(r"-?[0-9]{1,30}")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*([Zz]|[-+]\d\d:\d\d)")
_ESCAPE = re.compile(
    rb"\\(?:x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})"
    rb"|(?:u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))|(?P<letter>.))",
    re.DOTALL,
)
"""Escapes of Go's strconv.Quote, with which promtail and Alloy quote labels."""
_ESCAPES = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


class LokiProtocol:
    """Loki's push."""

    codec = "loki"
    inner_growth = MAX_SNAPPY_RATIO

    def takes(self, method: str, path: str) -> bool:
        """Return whether a request is a push, or asks ``/ready``."""
        return (method == "POST" and path in _PUSH) or (method == "GET" and path == _READY)

    def is_open(self, _: str, path: str) -> bool:
        """Return whether a request needs no token: ``/ready`` needs none."""
        return path == _READY

    def receive(self, request: Request) -> Received | Answer:
        """Return the lines of a push. Raises Refused."""
        if request.path == _READY:
            return Answer(200, b"ready\n", "text/plain")
        messages = Messages(request)
        add_streams = _add_json if request.content_type == JSON else _add_protobuf
        first_error = add_streams(request, messages)
        if not messages.refused:
            return messages.received(Answer(204))
        if not messages and first_error:
            raise Refused(400, SYNTAX, first_error)
        counts = ", ".join(f"{count} {reason}" for reason, count in messages.refused.items())
        text = f"{messages.refused.total()} lines were refused ({counts}), the others were accepted"
        text = f"{text}; {first_error}\n" if first_error else f"{text}\n"
        # As in Loki: clients do not retry 400, so the accepted lines are not repeated.
        return messages.received(Answer(400, text.encode(), "text/plain"))

    def refusal(self, error: Refused, request: Request) -> Answer:
        """Encode a refusal as a line of text; clients retry 429 and 5xx."""
        return Answer(error.status, f"{error}\n".encode(), "text/plain; charset=utf-8", error.retry_header)


def _add_json(request: Request, messages: Messages) -> str:
    """Add the entries of a push; return the first error. Raises Refused."""
    check_value_count(request.text, request.max_values)
    try:
        document = exact(request.text)
    except NotJson as error:
        raise Refused(400, SYNTAX, f"the body is {error}") from None
    try:
        streams = document.get("streams") if isinstance(document, Members) else None
    except NotJson as error:
        raise Refused(400, SYNTAX, f"the body: {error}") from None
    if not isinstance(streams, list) or isinstance(streams, Members):
        raise Refused(
            400, SYNTAX, 'the body is not a push: {"streams": [{"stream": {...}, "values": [...]}]} is expected'
        )
    check_message_count(len(streams), request.max_messages, "streams")
    first_error, tenant = "", _tenant(request)
    for number, stream in enumerate(streams, 1):
        stream_error = _add_stream(stream, f"stream {number}", tenant, messages)
        first_error = first_error or stream_error
    return first_error


def _tenant(request: Request) -> dict[str, str]:
    """Return the tenant of a push as an annotation; Loki keeps the lines of each one apart."""
    tenant = request.headers.get("x-scope-orgid", "")
    return {"tenant": tenant} if tenant else {}


def _add_stream(stream: Any, subject: str, tenant: Mapping[str, str], messages: Messages) -> str:
    """Add the entries of a stream; return the first error. One without entries that can be read counts as one."""
    try:
        entries = stream.get("values", "entries") if isinstance(stream, Members) else None
        if not isinstance(entries, list) or isinstance(entries, Members):
            raise NotJson("has no list of values")
    except NotJson as error:
        messages.refuse(SYNTAX)
        return f"{subject} {error}"
    try:
        labels = SharedAnnotations({**_labels_in_json(stream), **tenant})
    except (NotJson, Malformed) as error:
        for _ in entries:
            messages.refuse(SYNTAX)
        return f"{subject}: its labels: {error}"
    return _add_entries(entries, labels, messages, subject)


def _add_entries(entries: list[Any], labels: SharedAnnotations, messages: Messages, stream: str) -> str:
    first_error = ""
    for number, entry in enumerate(entries, 1):
        try:
            line, time, metadata = _parse_entry(entry)
        except NotJson as error:
            first_error = first_error or f"{stream}, entry {number}: {error}"
            messages.refuse(SYNTAX)
        else:
            messages.add(line, {"time": time, **metadata}, labels)
            first_error = first_error or messages.oversize_text
    return first_error


def _labels_in_json(stream: Members) -> dict[str, str]:
    """Parse labels: an object, or text such as ``{app="x"}`` in /api/prom/push. Raises NotJson, Malformed."""
    labels = stream.get("stream", "labels")
    return _parse_labels(readable(labels).encode()) if isinstance(labels, str) else _texts("labels", labels)


def _nanoseconds(time: Any) -> str:
    """Return a time, nanoseconds since the epoch or RFC 3339, as digits. Raises NotJson."""
    if isinstance(time, str) and _TIME.fullmatch(time):
        return str(int(time))
    match = _RFC3339.fullmatch(time) if isinstance(time, str) else None
    if match is None:
        raise NotJson("its time is not a number of nanoseconds")
    # A leap second is the first one of the next minute, as in the tables.
    is_leap = match[1].endswith("60")
    clock = match[1].removesuffix("60") + "59" if is_leap else match[1]
    try:
        moment = datetime.fromisoformat(clock.upper() + match[3].upper().replace("Z", "+00:00"))
    except ValueError as error:
        raise NotJson(f"its time is not valid: {error}") from None
    seconds = (moment - _EPOCH) // timedelta(seconds=1) + is_leap
    return str(seconds * 10**9 + int((match[2] or "0").ljust(9, "0")))


def _parse_entry(entry: Any) -> tuple[bytes, str, dict[str, str]]:
    """Return the line of an entry, its time and its metadata. Raises NotJson."""
    if isinstance(entry, Members):  # the form of /api/prom/push
        metadata = entry.get("structuredMetadata")
        # An object, as Loki's clients send it. Another form is left out, and no reason to refuse the line.
        has_metadata = isinstance(metadata, Members)
        entry = [entry.get("ts", "timestamp"), entry.get("line"), *([metadata] if has_metadata else [])]
    if not isinstance(entry, list) or not 2 <= len(entry) <= 3:
        raise NotJson("a list of a time and a line is expected")
    time, line, *metadata = entry
    digits = _nanoseconds(time)
    if not isinstance(line, str) or isinstance(line, Number | Foreign):
        raise NotJson("its line is not a string")
    return readable(line).encode(), digits, _texts("metadata", metadata[0]) if metadata else {}


def _texts(kind: str, members: Any) -> dict[str, str]:
    """Return labels or metadata as annotations; the texts of a repeated name are joined by NUL. Raises NotJson."""
    if not isinstance(members, Members):
        raise NotJson(f"{kind} are not an object")
    return join_repeated((f"{kind}.{readable(name)}", text_of_exact(value)) for name, value in members)


def _add_protobuf(request: Request, messages: Messages) -> str:
    """Add the entries of a PushRequest; return the error of the first bad labels. Raises Refused."""
    try:
        message = Message(_decompress(request))
        streams = message.top_level().with_tag(1, BYTES)
        check_message_count(len(streams.owner), request.max_messages, "streams")
        fields = message.fields(streams.begin, streams.end)
        label_texts = _by_owner(message, fields.with_tag(1, BYTES), len(streams.owner), b"")
        entries = fields.with_tag(2, BYTES).in_order()
        entry_fields = message.fields(entries.begin, entries.end)
        count = len(entries.owner)
        check_message_count(count, request.max_messages)
        lines = _by_owner(message, entry_fields.with_tag(2, BYTES), count, b"")
        times = _times(message, entry_fields.with_tag(1, BYTES), count)
        pairs = _pairs(message, entry_fields.with_tag(3, BYTES), count)
        # Limit: labels are counted before they are parsed, as fields are.
        check_field_count(sum(label_text.count(b"=") for label_text in label_texts))
    except TooManyFields as error:
        raise Refused(413, OVERSIZE, f"the push has {error}") from None
    except Malformed as error:
        raise Refused(400, SYNTAX, f"the body is not a push: {error}") from None
    labels: list[SharedAnnotations | str] = []
    first_error, tenant = "", _tenant(request)
    for number, label_text in enumerate(label_texts, 1):
        try:
            labels.append(SharedAnnotations({**_parse_labels(label_text), **tenant}))
        except Malformed as error:
            labels.append(SYNTAX)
            first_error = first_error or f"stream {number}: its labels: {error}"
    for owner, line, time, metadata in zip(entries.owner.tolist(), lines, times, pairs, strict=True):
        stream_labels = labels[owner]
        if isinstance(stream_labels, str):
            messages.refuse(stream_labels)
        else:
            messages.add(line, {"time": str(time), **join_repeated(metadata)}, stream_labels)
    return first_error or messages.oversize_text


def _decompress(request: Request) -> bytes:
    # Limit: the block states its size, which is compared with the limit before memory is allocated for it.
    try:
        return snappy_block(request.body, request.max_body_bytes)
    except Bomb as error:
        raise Refused(413, "oversize", f"the body: {error}") from None
    except NotPacked as error:
        raise Malformed(f"it is not compressed with snappy: {error}") from None


def _by_owner(message: Message, values: Values, count: int, absent: bytes) -> list[bytes]:
    last = values.last(count)
    begins, ends = values.begin.tolist(), values.end.tolist()
    return [message.data[begins[index] : ends[index]] if index >= 0 else absent for index in last.tolist()]


def _times(message: Message, stamps: Values, count: int) -> list[int]:
    """Return nanoseconds since the epoch."""
    fields = message.fields(stamps.begin, stamps.end)
    seconds, nanoseconds = (np.zeros(len(stamps.owner) + 1, np.int64) for _ in range(2))
    for number, values in ((1, seconds), (2, nanoseconds)):
        parts = fields.with_tag(number, VARINT)
        values[parts.owner] = parts.value.view(np.int64)
    last = stamps.last(count)
    # Python's integers: 64 bits of nanoseconds do not hold Go's zero time (the year 1), or times after 2262.
    pairs = zip(seconds[last].tolist(), nanoseconds[last].tolist(), strict=True)
    return [second * 10**9 + nanosecond for second, nanosecond in pairs]


def _pairs(message: Message, values: Values, count: int) -> list[list[tuple[str, str]]]:
    """Return the structured metadata of each entry."""
    pairs: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    fields = message.fields(values.begin, values.end)
    names, texts = (_by_owner(message, fields.with_tag(number, BYTES), len(values.owner), b"") for number in (1, 2))
    for owner, name, value in zip(values.owner.tolist(), names, texts, strict=True):
        pairs[owner].append((f"metadata.{text(name)}", text(value)))
    return pairs


def _parse_labels(data: bytes) -> dict[str, str]:
    """Parse ``{job="app", level="info"}`` to annotations. Raises Malformed."""
    return join_repeated((f"labels.{name}", value) for name, value in _split_labels(text(data).strip()))


def _split_labels(labels: str) -> Iterator[tuple[str, str]]:
    if not labels.startswith("{") or not labels.endswith("}"):
        raise Malformed("labels are not in braces")
    position, inside = 0, labels[1:-1].strip()
    while position < len(inside):
        match = _LABEL.match(inside, position)
        if match is None:
            raise Malformed('labels must have the form {job="app"}')
        quoted = match["double"] or match["single"]
        yield match["name"], text(_ESCAPE.sub(_unescape, quoted.encode())) if quoted else match["raw"] or ""
        position = match.end()


def _unescape(escape: re.Match[bytes]) -> bytes:
    if letter := escape["letter"]:
        return bytes([_ESCAPES.get(letter[0], letter[0])])
    if escape["byte"] or escape["octal"]:
        return bytes([int(escape["byte"], 16) if escape["byte"] else int(escape["octal"], 8)])
    point = int(escape["short"] or escape["long"], 16)
    return (chr(point) if point < 0x110000 and not 0xD800 <= point < 0xE000 else "\ufffd").encode()

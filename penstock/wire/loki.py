"""The protocol for Loki's push: streams of lines with labels, in JSON, or in protobuf packed with snappy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from penstock.wire.json_text import Foreign, Members, NotJson, Number, exact, readable, text_of_exact
from penstock.wire.protobuf import BYTES, VARINT, Malformed, Message, Values
from penstock.wire.requests import JSON, SYNTAX, Answer, Messages, Received, Refused, Request
from penstock.wire.sender_text import text
from penstock.wire.unpacking import MAX_SNAPPY_RATIO, Bomb, NotPacked, snappy_block

_PUSH = ("/loki/api/v1/push", "/api/prom/push")
_READY = "/ready"
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_:.]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_EPOCH = datetime.fromtimestamp(0, UTC)
_TIME = re.compile(r"-?[0-9]{1,30}")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*([Zz]|[-+]\d\d:\d\d)")
_ESCAPE = re.compile(
    rb"\\(?:x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})"
    rb"|(?:u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))|(?P<letter>.))",
    re.DOTALL,
)
"""What Go's strconv.Quote writes: promtail and Alloy quote labels by it."""
_ESCAPES = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


class LokiProtocol:
    """Loki's push."""

    codec = "loki"
    inner_growth = MAX_SNAPPY_RATIO

    def takes(self, method: str, path: str) -> bool:
        """The two paths of pushes, and ``/ready``."""
        return (method == "POST" and path in _PUSH) or (method == "GET" and path == _READY)

    def is_open(self, _: str, path: str) -> bool:
        """Return whether a request needs no token: ``/ready`` needs none."""
        return path == _READY

    def receive(self, request: Request) -> Received | Answer:
        """Raises Refused."""
        if request.path == _READY:
            return Answer(200, b"ready\n", "text/plain")
        messages = Messages(request)
        first = ""
        if request.content_type == JSON:
            first = _take_json(request.body, messages)
        else:
            _take_protobuf(request, messages)
        if not messages.refused:
            return messages.received(Answer(204))
        if not messages and first:
            raise Refused(400, SYNTAX, first)
        counts = ", ".join(f"{count} {reason}" for reason, count in messages.refused.items())
        said = f"{messages.refused.total()} lines were refused ({counts}), the others were taken"
        answer = f"{said}; {first}\n" if first else f"{said}\n"
        return messages.received(Answer(400, answer.encode(), "text/plain"))  # as Loki has it: these do not come again

    def refusal(self, why: Refused, request: Request) -> Answer:
        """A line of text; its clients try 429 and those from 500 on again."""
        headers = {"retry-after": "1"} if why.is_retryable else {}
        return Answer(why.status, f"{why}\n".encode(), "text/plain; charset=utf-8", headers)


def _take_json(data: bytes, messages: Messages) -> str:
    """Take the entries of a push; return what is said of the first that is none. Raises Refused."""
    try:
        document = exact(data)
    except NotJson as error:
        raise Refused(400, SYNTAX, f"the body is not JSON: {error}") from None
    streams = document.get("streams") if isinstance(document, Members) else None
    if not isinstance(streams, list) or not all(isinstance(stream, Members) for stream in streams):
        raise Refused(400, SYNTAX, 'the body is no push: {"streams": [{"stream": {...}, "values": [...]}]} is expected')
    first = ""
    for number, stream in enumerate(streams, 1):
        entries = stream.get("values", "entries")
        if not isinstance(entries, list):
            raise Refused(400, SYNTAX, f"stream {number} has no list of values")
        try:
            labels = _labels_in_json(stream)
        except (NotJson, Malformed) as error:
            why = f"stream {number}: its labels: {error}"
            for _ in entries:
                messages.refuse(SYNTAX)
        else:
            why = _take_entries(entries, labels, messages, f"stream {number}")
        first = first or why
    return first


def _take_entries(entries: list[Any], labels: Mapping[str, str], messages: Messages, stream: str) -> str:
    first = ""
    for number, entry in enumerate(entries, 1):
        try:
            line, said = _entry(entry)
        except NotJson as error:
            first = first or f"{stream}, entry {number}: {error}"
            messages.refuse(SYNTAX)
        else:
            messages.add(line, {"time": said.pop("time"), **labels, **said})
    return first


def _labels_in_json(stream: Members) -> Mapping[str, str]:
    """An object in today's form, ``{app="x"}`` in that of /api/prom/push. Raises NotJson, Malformed."""
    labels = stream.get("stream", "labels")
    return _labels(readable(labels).encode()) if isinstance(labels, str) else _texts("labels", labels)


def _nanoseconds(when: Any) -> str:
    """A time since the epoch, or by RFC 3339, in digits. Raises NotJson."""
    if isinstance(when, str) and _TIME.fullmatch(when):
        return str(int(when))
    match = _RFC3339.fullmatch(when) if isinstance(when, str) else None
    if match is None:
        raise NotJson("its time is no number of nanoseconds")
    try:
        moment = datetime.fromisoformat(match[1].upper() + match[3].upper().replace("Z", "+00:00"))
    except ValueError as error:
        raise NotJson(f"its time is none: {error}") from None
    return str((moment - _EPOCH) // timedelta(seconds=1) * 10**9 + int((match[2] or "0").ljust(9, "0")))


def _entry(entry: Any) -> tuple[bytes, dict[str, str]]:
    """The line of an entry, its time and its metadata. Raises NotJson."""
    if isinstance(entry, Members):  # that of /api/prom/push
        entry = [entry.get("ts", "timestamp"), entry.get("line")]
    if not isinstance(entry, list) or not 2 <= len(entry) <= 3:
        raise NotJson("a list of a time and a line is expected")
    when, line, *more = entry
    time = _nanoseconds(when)
    if not isinstance(line, str) or isinstance(line, Number | Foreign):
        raise NotJson("its line is no text")
    return readable(line).encode(), {"time": time, **(_texts("metadata", more[0]) if more else {})}


def _texts(kind: str, members: Any) -> dict[str, str]:
    """Labels or metadata as annotations; the values of a repeated name are joined by NUL. Raises NotJson."""
    if not isinstance(members, Members):
        raise NotJson(f"{kind} are no object")
    texts: dict[str, str] = {}
    for name, value in members:
        _add(texts, f"{kind}.{readable(name)}", text_of_exact(value))
    return texts


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
    """Return the body without snappy. Raises Refused and Malformed."""
    try:
        return snappy_block(request.body, request.max_body_bytes)
    except Bomb as error:
        raise Refused(413, "oversize", f"the body: {error}") from None
    except NotPacked as error:
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
        _add(found[owner], f"metadata.{text(name)}", text(value))
    return found


def _labels(data: bytes) -> Mapping[str, str]:
    """``{job="app", level="info"}`` as annotations. Raises Malformed."""
    labels: dict[str, str] = {}
    for name, value in _named(text(data).strip()):
        _add(labels, f"labels.{name}", value)
    return labels


def _named(said: str) -> Iterator[tuple[str, str]]:
    if not said.startswith("{") or not said.endswith("}"):
        raise Malformed("labels stand in braces")
    at, inside = 0, said[1:-1].strip()
    while at < len(inside):
        found = _LABEL.match(inside, at)
        if found is None:
            raise Malformed('labels are like {job="app"}')
        yield found[1], text(_ESCAPE.sub(_unescaped, found[2].encode()))
        at = found.end()


def _unescaped(escape: re.Match[bytes]) -> bytes:
    if letter := escape["letter"]:
        return bytes([_ESCAPES.get(letter[0], letter[0])])
    if escape["byte"] or escape["octal"]:
        return bytes([int(escape["byte"], 16) if escape["byte"] else int(escape["octal"], 8)])
    point = int(escape["short"] or escape["long"], 16)
    return (chr(point) if point < 0x110000 and not 0xD800 <= point < 0xE000 else "\ufffd").encode()


def _add(texts: dict[str, str], name: str, value: str) -> None:
    """Add an annotation; the values of a repeated name are joined by NUL, as in tables."""
    texts[name] = f"{texts[name]}\0{value}" if name in texts else value

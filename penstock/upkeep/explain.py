"""Explain what a payload would become by a way in, with the code that decodes, classifies and lands messages.

Nothing is sent or stored, and duplicates are not looked for. Start with ``explain``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.config import ListenerConfig, LogHandler, Settings
from penstock.counts import Counts, Name
from penstock.errors import PenstockError
from penstock.handover.drain.topic_requests import requested_topics
from penstock.ingest.connections import splitters_of
from penstock.ingest.receiver import make_decoder
from penstock.landing.event_rules import FOREIGN_CODECS, VIEWS, MessageKind
from penstock.landing.from_kafka.rows import ROW
from penstock.landing.rows.payload_fault import find_fault
from penstock.landing.rows.table_rows import Rules
from penstock.landing.transform.rules import Transformation, TransformRules
from penstock.landing.typed.columns import TypedTable
from penstock.landing.writing.part_writer import rows_to_land
from penstock.records import as_batch, body
from penstock.wire.datagrams import Datagrams
from penstock.wire.request_protocols import REQUEST_PROTOCOLS
from penstock.wire.requests import Answer, Refused, Request

PATHS = {
    "http": "/",
    "hec": "/services/collector/event",
    "loki": "/loki/api/v1/push",
    "bulk": "/_bulk",
    "otlp": "/v1/logs",
}
"""Path of a request, by the name of its way in."""
CODECS = {
    "udp": ("udp", "plog"),
    "tcp": ("tcp", "plog"),
    "raw": ("udp", "raw"),
    "syslog": ("udp", "syslog"),
    "gelf": ("udp", "gelf"),
    "forward": ("tcp", "forward"),
}
"""Protocol and codec of a listener, by the name of its way in."""
APPENDS = ("grpc", "kafka")
"""Ways in that store payloads unchanged."""
PLAIN_CODEC = "plog"
NAMED_BY_SENDER = "that the sender names"
UNSHOWN_COLUMNS = ("payload", "offset", "partition", "timestamp", "bucket", "received", "landed_at", "topic", "source")
"""Columns that are the payload itself, or that only the log decides."""


class UnknownWay(PenstockError, ValueError):
    """A name that is not a way in; the text names the existing ones."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A message of the payload: its kind, topic, tables and columns, and why it is of this kind."""

    kind: str
    topic: str
    tables: list[str]
    why: str
    fault: dict[str, Any] | None
    columns: dict[str, str]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome of a payload: messages, refusals by reason, and the answer to a request."""

    via: str
    codec: str
    messages: list[Outcome]
    refused: dict[str, int] = field(default_factory=dict)
    answer: str = ""

    def document(self) -> dict[str, Any]:
        """Return the explanation as a JSON document."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """Messages (``records.BODY``) of a payload by codec, the counts of refusals, and the answer to the sender."""

    codec: str
    body: pa.RecordBatch
    refused: dict[str, int] = field(default_factory=dict)
    answer: str = ""


def ways_in(settings: Settings) -> list[str]:
    """Return the names of all ways in: kinds, then listeners of the configuration."""
    return [*CODECS, *PATHS, *APPENDS, *(listener.name for listener in settings.listener)]


def explain(
    payload: bytes, via: str, settings: Settings, rules: Rules, typed: Sequence[TypedTable] = (), path: str = ""
) -> Explanation:
    """Explain a payload that comes by ``via``: a name of ``ways_in``. ``path``: of a request to an HTTP listener.

    Raises UnknownWay, BadTransform.
    """
    listener = next((listener for listener in settings.listener if listener.name == via), None)
    topic = _topic(via, listener, settings)
    if listener is None and via in APPENDS:
        decoded = _Decoded(PLAIN_CODEC, body(pa.array([payload], pa.binary())))
    elif via in PATHS or (listener is not None and listener.has_responses):
        decoded = _request(payload, path or PATHS.get(via) or PATHS["otlp" if _is_grpc(listener) else "http"])
    elif listener is not None or via in CODECS:
        decoded = _lines_or_datagram(payload, listener or _plain_listener(*CODECS[via]))
    else:
        raise UnknownWay(f"{via!r} is not a way in: {', '.join(ways_in(settings))}")
    transformation = Transformation(TransformRules.from_config(settings.pipeline).steps())
    outcomes = list(_outcomes(decoded, topic, rules, transformation, typed))
    return Explanation(via, decoded.codec, outcomes, decoded.refused, decoded.answer)


def _topic(via: str, listener: ListenerConfig | None, settings: Settings) -> str:
    """Return the topic of a listener: of the first one of its kind if ``via`` names only a kind."""
    if listener is None and via in APPENDS:
        return NAMED_BY_SENDER
    alike = [each for each in settings.listener if (each.protocol, each.codec) == CODECS.get(via)]
    alike += [each for each in settings.listener if via in PATHS and each.has_responses]
    handlers = [handler for each in ([listener] if listener else alike) for handler in each.handlers]
    return next((handler.topic for handler in handlers if isinstance(handler, LogHandler)), "events")


def _is_grpc(listener: ListenerConfig | None) -> bool:
    return listener is not None and listener.protocol == "otlp_grpc"


def _plain_listener(protocol: str, codec: str) -> ListenerConfig:
    return ListenerConfig.model_validate({"name": "explain", "protocol": protocol, "codec": codec})


def _lines_or_datagram(payload: bytes, listener: ListenerConfig) -> _Decoded:
    decoder = make_decoder(listener)
    if listener.takes_datagrams:
        decoded = decoder.decode(Datagrams.from_bytes([payload]), time.monotonic())
        waiting = {"waits for more fragments": decoder.open_messages} if decoder.open_messages else {}
        return _Decoded(listener.codec, decoded.body, {**_refusals(decoded.counts), **waiting})
    splitter = splitters_of(listener)()
    parts = [splitter.feed(payload), splitter.finish()]
    decoded = decoder.decode_lines(pa.concat_arrays([part.lines for part in parts]))
    refused = Counts({"overlong": sum(part.overlong for part in parts)})
    for part in parts:
        refused.absorb(part.refused)
    return _Decoded(
        listener.codec, decoded.body, {**_refusals(decoded.counts), **{n: c for n, c in refused.items() if c}}
    )


def _refusals(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of what was not a message."""
    accepted = {Name.TAKEN, Name.UNBOXED, Name.SEEN, Name.ACCEPTED}
    return {str(name): count for name, count in counts.items() if count > 0 and name not in accepted}


def _request(payload: bytes, path: str) -> _Decoded:
    media_type = "application/json" if payload.lstrip()[:1] in (b"{", b"[") else "application/x-protobuf"
    request = Request("POST", path, payload, headers={"content-type": media_type})
    protocol = next((p for p in (make() for make in REQUEST_PROTOCOLS) if p.takes("POST", path)), None)
    if protocol is None:
        return _Decoded("", body(pa.nulls(0, pa.binary())), answer=f"404: no protocol has POST {path}")
    try:
        received = protocol.receive(request)
    except Refused as error:
        return _Decoded(protocol.codec, body(pa.nulls(0, pa.binary())), {error.reason: 1}, f"{error.status}: {error}")
    if isinstance(received, Answer):
        return _Decoded(protocol.codec, body(pa.nulls(0, pa.binary())), answer=_describe(received))
    refused = {reason: count for reason, count in received.refused.items() if count}
    return _Decoded(protocol.codec, as_batch(received.body), refused, _describe(received.answer))


def _describe(answer: Answer) -> str:
    text = answer.body.decode(errors="replace") if answer.body.isascii() else ""
    return f"{answer.status}{': ' if text else ''}{text[:300]}"


def _outcomes(
    decoded: _Decoded, topic: str, rules: Rules, transformation: Transformation, typed: Sequence[TypedTable]
) -> Iterator[Outcome]:
    topics = requested_topics(decoded.body) if decoded.body.num_rows else None
    rows = _as_landing_rows(decoded, topic)
    parts = list(rows_to_land(rows, rules, transformation, None))
    ordered = sorted(
        ((row, kind) for kind, part in parts for row in part.to_pylist()), key=lambda pair: int(pair[0]["offset"])
    )
    for row, kind in ordered:
        number = int(row["offset"])
        requested = topics[number].as_py() if topics is not None else None
        payload = decoded.body.column("payload")[number].as_py() or b""
        yield _outcome(row, kind, requested or topic, payload, decoded.codec, typed, rules)


def _as_landing_rows(decoded: _Decoded, topic: str) -> pa.RecordBatch:
    now, count = datetime.now(UTC), decoded.body.num_rows
    fixed = {"topic": topic, "partition": None, "timestamp": now, "source": "explain", "bucket": now, "received": now}
    columns = {name: pa.array([value] * count, ROW.field(name).type) for name, value in fixed.items()}
    columns |= {"offset": pa.array(range(count), pa.int64()), "codec": pa.array([decoded.codec] * count, pa.string())}
    columns |= {name: decoded.body.column(name) for name in ("key", "payload", "type_url", "annotations")}
    return pa.RecordBatch.from_arrays([columns[column.name].cast(column.type) for column in ROW], schema=ROW)


def _outcome(
    row: Mapping[str, Any],
    kind: MessageKind,
    topic: str,
    payload: bytes,
    codec: str,
    typed: Sequence[TypedTable],
    rules: Rules,
) -> Outcome:
    columns = {name: _text(value) for name, value in row.items() if name not in UNSHOWN_COLUMNS and value is not None}
    tables = ["landed", *(view for view, kind_of_view in VIEWS.items() if kind_of_view == kind)]
    fault = None
    if kind is MessageKind.EVENT:
        why = "a JSON object with a valid type, uuid and timestamp"
        for table in typed:
            if table.type == row["type"]:
                tables.append(table.view)
                values = table.compute(pa.array([row["data"]], pa.string()))
                cells = {name: column.to_pylist()[0] for name, column in values.items()}
                columns |= {f"{table.view}.{n}": _text(cell) for n, cell in cells.items() if cell is not None}
    elif kind is MessageKind.QUARANTINE:
        found_fault = find_fault(row["reason"], payload, rules.events.schemas)
        why, fault = f"begins with {{ and is not a valid event: {found_fault.text}", found_fault.document()
    elif kind is MessageKind.SYSLOG:
        why = "every message of the codec syslog"
    elif kind is MessageKind.DROPPED:
        why = "dropped by pipeline.transform"
    elif payload.startswith(b"{") and codec in FOREIGN_CODECS:
        why = f"senders of {codec} may send JSON that was not meant as an event"
    else:
        why = "does not begin with {"
    return Outcome(str(kind), topic, tables, why, fault, columns)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return ", ".join(f"{name}={text!r}" for name, text in value)
    return value.isoformat() if isinstance(value, datetime) else str(value)

"""Outcomes of payloads by each way in: the table of docs/tables.md, and reasons, topics and columns."""

from __future__ import annotations

import re
from pathlib import Path

import msgpack
import pytest

from penstock.config import load
from penstock.landing.rows.json_events import EventRules
from penstock.landing.rows.table_rows import Rules
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.upkeep.explain import Explanation, UnknownWay, explain, ways_in

EVENT = '{"type":"click","uuid":"u1","timestamp":1,"host":"h","data":{"user":{"id":"x"},"a":1}}'
PAYLOADS = (EVENT, '{"a":1}', '{"a":', '{"type":"click","uuid":"","timestamp":1}', "plain")
"""Payloads by column of the table: a valid event, no event, no JSON, a bad uuid, other text."""
OTLP = '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":TEXT}}]}]}]}'


def explained(payload: str | bytes, via: str, *options: str, **more: object) -> Explanation:
    settings = load(None, options, {})
    content = payload if isinstance(payload, bytes) else payload.encode()
    return explain(content, via, settings, Rules(EventRules(settings.pipeline.event_types)), **more)  # type: ignore[arg-type]


def wrapped(via: str, payload: str) -> str | bytes:
    """Return a payload in the envelope of a protocol."""
    quoted = '"' + payload.replace('"', '\\"') + '"'
    if via == "loki":
        return f'{{"streams":[{{"stream":{{"a":"b"}},"values":[["1700000000000000000",{quoted}]]}}]}}'
    if via == "otlp":
        return OTLP.replace("TEXT", quoted)
    if via == "hec":
        return f'{{"event":{quoted}}}'
    return payload


@pytest.mark.parametrize(
    ("via", "kinds"),
    [
        ("udp", ["event", "quarantine", "quarantine", "quarantine", "message"]),
        ("tcp", ["event", "quarantine", "quarantine", "quarantine", "message"]),
        ("raw", ["event", "quarantine", "quarantine", "quarantine", "message"]),
        ("grpc", ["event", "quarantine", "quarantine", "quarantine", "message"]),
        ("kafka", ["event", "quarantine", "quarantine", "quarantine", "message"]),
        ("syslog", ["syslog"] * 5),
        ("http", ["event", "message", "refused", "quarantine", "refused"]),
        ("hec", ["event", "message", "message", "quarantine", "message"]),
        ("loki", ["event", "message", "message", "quarantine", "message"]),
        ("otlp", ["event", "message", "message", "quarantine", "message"]),
    ],
)
def test_payload_becomes_what_the_documented_table_says(via: str, kinds: list[str]) -> None:
    for payload, kind in zip(PAYLOADS, kinds, strict=True):
        explanation = explained(wrapped(via, payload), via)
        outcomes = [message.kind for message in explanation.messages] or ["refused"]
        assert outcomes == [kind], (via, payload)
        assert bool(explanation.refused) == (kind == "refused")


def test_event_that_misses_a_strict_table_names_the_field() -> None:
    strict = TypedTable("click", "click", (Column("a", "boolean", "a"),), strict=True)
    settings = load(None, (), {})
    (message,) = explain(EVENT.encode(), "events-udp", settings, Rules(EventRules((), (strict,)))).messages
    assert message.why.endswith("data.a is number 1, it must be boolean, at character 84")


def test_event_has_topic_tables_and_columns() -> None:
    table = TypedTable("click", "click", (Column("id", "string", "user.id"),))
    (message,) = explained(EVENT, "events-udp", typed=[table]).messages
    assert (message.topic, message.tables) == ("events", ["landed", "events", "events_click"])
    assert message.columns["data"] == '{"user":{"id":"x"},"a":1}'
    assert (message.columns["events_click.id"], message.columns["events_click.rest"]) == ("x", '{"a":1}')


def test_fault_and_redaction_are_those_of_the_landing() -> None:
    (message,) = explained('{"a":1,}', "udp").messages
    assert message.fault == {
        "text": "not valid JSON: expecting property name enclosed in double quotes, at character 8",
        "byte": 8,
        "character": 8,
    }
    (redacted,) = explained(EVENT, "udp", "pipeline.redact.patterns=['x']", "pipeline.redact.replacement=y").messages
    assert redacted.columns["data"] == '{"user":{"id":"y"},"a":1}'
    (refused,) = explained(EVENT, "udp", "pipeline.event_types=['view']").messages
    assert refused.columns["reason"] == "type_not_allowed"


def test_binary_protocol_and_several_messages_are_decoded() -> None:
    chunk = msgpack.packb(["app", [[1_700_000_000, {"log": "one"}], [1_700_000_001, {"log": "two"}]]])
    assert [message.kind for message in explained(chunk, "forward").messages] == ["message", "message"]
    assert [message.kind for message in explained("<13>app: a\n<13>app: b\n", "syslog-tcp").messages] == ["syslog"] * 2
    assert explained(b"\xc1", "forward").refused
    assert explained('{"create":{"_index":"i"}}\n{"a":1}\n', "bulk").messages[0].kind == "message"


def test_unknown_way_names_the_existing_ones() -> None:
    with pytest.raises(UnknownWay, match=r"'nowhere' is not a way in: udp, tcp, .*events-udp"):
        explained("x", "nowhere")
    assert "syslog-tcp" in ways_in(load(None, [], {}))


def test_documented_ways_are_the_existing_ones() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    (names,) = re.findall(r"The ways in are (.*?), and the name of any listener", page, re.DOTALL)
    assert re.findall(r"`(\w+)`", names) == [name for name in ways_in(load(None, [], {})) if "-" not in name]

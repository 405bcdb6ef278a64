"""Events in payloads: their fields, and the reasons for refusing others."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.landing.event_rules import MAX_TIMESTAMP, MIN_TIMESTAMP, Event, Reason
from penstock.landing.rows.json_events import EventRules, event_columns, parse_events
from penstock.landing.rows.type_schemas import Field, TypeSchema
from tests.landing.rows.payloads import EVENTS, QUARANTINED
from tests.landing.rows.plain_judge import deep_recursion, judge, micros_of, near_events, parsed_exactly, scraps

TABLE = [*((None, payload) for payload in EVENTS), *QUARANTINED]
Fate = dict[str, Any]


def columns(payloads: list[bytes], rules: EventRules | None = None) -> dict[str, list[Any]]:
    event_fields = event_columns(pa.array(payloads, pa.binary()), rules or EventRules())
    event_fields["event_time"] = event_fields["event_time"].cast(pa.int64())
    return {name: column.to_pylist() for name, column in event_fields.items()}


def reasons(payloads: list[bytes], rules: EventRules | None = None) -> list[str | None]:
    return columns(payloads, rules)["reason"]


def fates(payloads: list[bytes]) -> list[Fate]:
    event_fields = columns(payloads)
    return [{name: values[row] for name, values in event_fields.items()} for row in range(len(payloads))]


@pytest.mark.parametrize(("reason", "payload"), TABLE, ids=range(len(TABLE)))
def test_payload_is_event_or_has_reason(reason: str | None, payload: bytes) -> None:
    assert reasons([payload]) == [reason]
    verdict = judge(payload)
    assert (verdict if isinstance(verdict, str) else None) == reason, "the plain judge agrees"


ALONE = {payload: fates([payload])[0] for _, payload in TABLE}


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(TABLE), min_size=1, max_size=25))
@example(TABLE)
@example(TABLE[::-1])
def test_fate_does_not_depend_on_other_rows(rows: list[tuple[str | None, bytes]]) -> None:
    row_fates = fates([payload for _, payload in rows])
    assert [fate["reason"] for fate in row_fates] == [reason for reason, _ in rows]
    assert row_fates == [ALONE[payload] for _, payload in rows]


def check_fate(payload: bytes, fate: Fate) -> None:
    """Check the columns against the plain judge."""
    verdict = judge(payload)
    if isinstance(verdict, Reason):
        assert fate == {**dict.fromkeys(fate), "reason": verdict}, payload
        return
    plain = ("type", "uuid", "host", "event_time", "reason")
    assert {name: fate[name] for name in plain} == {**{name: verdict.get(name) for name in plain}}, payload
    text = fate["data"]
    with deep_recursion():
        assert (parsed_exactly(text) if text is not None else None) == verdict["data"], payload


@settings(max_examples=60, deadline=None)
@given(st.lists(near_events() | scraps(), min_size=1, max_size=80))
def test_near_events_match_plain_judge(payloads: list[bytes]) -> None:
    for payload, fate in zip(payloads, fates(payloads), strict=True):
        check_fate(payload, fate)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=30))
def test_no_bytes_raise_errors(tails: list[bytes]) -> None:
    assert len(reasons([b"{" + tail for tail in tails])) == len(tails)


NUMBERS = st.one_of(
    st.decimals(MIN_TIMESTAMP - 2, MAX_TIMESTAMP + 2, places=3),
    st.decimals(MIN_TIMESTAMP - 2, MAX_TIMESTAMP + 2, allow_nan=False),
    st.decimals(-10, 10, places=7),
    st.sampled_from([MIN_TIMESTAMP, MAX_TIMESTAMP]).flatmap(lambda edge: st.decimals(edge - 1, edge + 1, places=5)),
)
SHAPES = [
    '{"type":"a","uuid":"u","timestamp":%s}',
    '{"timestamp"\t:\n%s, "type":"a","uuid":"u","data":{"timestamp":2.5}}',
    '{"type":"a","uuid":"u","timest\\u0061mp":%s,"data":{"timestamp":2.5}}',
    '{"type":"a","uuid":"u","timestamp":%s,"timestamp":2.5}',
    '{"type":"timestamp","uuid":"\\"timestamp\\":7.5","timestamp":%s}',
]


def format_number(number: Decimal, format_spec: str) -> str:
    """Return the number in a notation of JSON."""
    return f"{number:{format_spec}}"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBERS, st.sampled_from(["f", "e", ".25e"]), st.sampled_from(SHAPES)), max_size=20))
def test_event_time_is_exact_to_the_microsecond(
    rows: list[tuple[Decimal, str, str]],
) -> None:
    payloads = [(shape % format_number(number, how)).encode() for number, how, shape in rows]
    for payload, fate in zip(payloads, fates(payloads), strict=True):
        check_fate(payload, fate)


@given(st.lists(st.one_of(st.integers(-(2**63) - 2, 2**63 + 1), st.integers(-(10**15) - 2, 10**15 + 2)), max_size=4))
@example([-(2**63)])
@example([2**63 - 1, 5])
def test_long_whole_numbers_are_times_or_refused(numbers: list[int]) -> None:
    payloads = [SHAPES[0].encode() % str(number).encode() for number in numbers]
    for payload, fate in zip(payloads, fates(payloads), strict=True):
        check_fate(payload, fate)


@pytest.mark.parametrize(
    ("number", "micros"),
    [
        ("1700000000000.12349", 1_700_000_000_000_123),
        ("1700000000000.1235", 1_700_000_000_000_124),
        ("-62135596799999.877", -62_135_596_799_999_877),
        ("253402300799998.001", 253_402_300_799_998_001),
        ("0.00049999999999999999999999999999999999999999", 0),
        ("0.0005", 1),
        ("-0.0005", -1),
        ("17E+2", 1_700_000),
        ("17000000000001234e-4", 1_700_000_000_000_123),
        ("0e99999999999999999999", 0),
    ],
)
def test_event_time_keeps_digits_beyond_a_double(number: str, micros: int) -> None:
    (fate,) = fates([SHAPES[0].encode() % number.encode()])
    assert fate["event_time"] == micros == micros_of(Decimal(number) if "99999999" not in number else Decimal(0))


def test_first_of_repeated_keys_counts() -> None:
    twice = (
        b'{"type":"a","type":"b","uuid":"u","host":"x","\\u0068ost":"y","timestamp":1,"timestamp":2,"data":1,"data":2}'
    )
    (fate,) = fates([twice])
    assert fate == {"type": "a", "uuid": "u", "host": "x", "event_time": 1000, "data": "1", "reason": None}


def test_escapes_are_decoded() -> None:
    (fate,) = fates(
        [rb'{"type":"\u00e9\"","uuid":"\\a\u0000\ud83d\ude00\/","host":"h\n","timestamp":1,"data":"\u0041\n"}']
    )
    assert (fate["type"], fate["uuid"], fate["host"]) == ('é"', "\\a\0\U0001f600/", "h\n")
    assert json.loads(fate["data"]) == "A\n"


def test_host_without_text_is_null() -> None:
    assert [fate["host"] for fate in fates([b'{"type":"a","uuid":"u","timestamp":1,"host":[1]}'])] == [None]


def test_first_reason_counts() -> None:
    everything = b'{"type":5,"timestamp":"x"}'
    assert reasons([everything], EventRules(("a",))) == [Reason.BAD_TYPE]


def test_only_configured_types_are_events() -> None:
    payloads = [b'{"type":"%s","uuid":"u","timestamp":1}' % kind for kind in (b"a", b"b", b"\\u0062")]
    assert reasons(payloads, EventRules(("b",))) == [Reason.TYPE_NOT_ALLOWED, None, None]


def test_event_that_violates_schema_is_refused() -> None:
    rules = EventRules(schemas=(TypeSchema("a", (Field("n", "whole", required=True),)),))
    payloads = [b'{"type":"%s","uuid":"u","timestamp":1,"data":{"n":"1"}}' % kind for kind in (b"a", b"b")]
    assert reasons(payloads, rules) == [Reason.SCHEMA_NOT_MET, None]


def test_parse_events_returns_type_and_uuid_or_none() -> None:
    payloads = [b'{"type":"\\u00e9","uuid":"a\\"b","timestamp":1}', b"text", None, b"", b"{bad"]
    assert parse_events(pa.array(payloads, pa.binary())) == [Event("é", 'a"b'), None, None, None, None]
    assert parse_events(pa.array([], pa.binary())) == []
    assert parse_events(pa.array(payloads[:1], pa.binary()), EventRules(("e",))) == [None]


def test_slice_has_columns_of_its_rows() -> None:
    payloads = pa.array([payload for _, payload in TABLE], pa.binary())
    reasons_of_slice = event_columns(payloads[5:60], EventRules())["reason"].to_pylist()
    assert reasons_of_slice == [reason for reason, _ in TABLE[5:60]]


def test_empty_array_has_no_rows() -> None:
    assert columns([]) == {name: [] for name in ("type", "uuid", "host", "data", "event_time", "reason")}


def test_large_payload_is_judged_next_to_small_ones() -> None:
    large = json.dumps({"type": "a", "uuid": "u", "timestamp": 1, "data": {"text": "x" * (1 << 20)}}).encode()
    row_fates = fates([EVENTS[0], large, large[:-1], EVENTS[0]])
    assert [fate["reason"] for fate in row_fates] == [None, None, "bad_json", None]
    assert len(row_fates[1]["data"]) > 1 << 20


def test_deep_nesting_does_not_change_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    deep = b'{"type":"a","uuid":"u","timestamp":1.5,"data":' + b"[" * 998 + b"]" * 998 + b',"\\u0078":1}'
    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.extend(reasons([deep, b"{" + b'"a":[' * 100_000])))
    thread.start()
    thread.join()
    assert answers == [None, Reason.BAD_JSON]
    assert sys.getrecursionlimit() == limit


def test_event_time_covers_years_1_to_9999() -> None:
    first, last = (datetime(year, month, day, tzinfo=UTC) for year, month, day in ((1, 1, 1), (9999, 12, 31)))
    edge_fates = fates([SHAPES[0].encode() % str(edge).encode() for edge in (MIN_TIMESTAMP, MAX_TIMESTAMP)])
    days = [(fate["event_time"] // 86_400_000_000) for fate in edge_fates]
    assert days == [(edge - datetime(1970, 1, 1, tzinfo=UTC)).days for edge in (first, last)]

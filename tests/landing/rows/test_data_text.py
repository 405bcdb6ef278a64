"""The column ``data``: the sent text without blanks between values."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.rows import data_text
from penstock.landing.rows.data_text import find_member
from penstock.landing.rows.json_events import EventRules, event_columns

FIELDS = '"type":"a","uuid":"u","timestamp":1'


def data_of(*payloads: str) -> list[str | None]:
    columns = event_columns(pa.array([payload.encode() for payload in payloads], pa.binary()), EventRules())
    assert columns["reason"].null_count == len(payloads)
    texts: list[str | None] = columns["data"].to_pylist()
    return texts


TEXTS = [
    "1.10",
    "1e2",
    "1E+02",
    "-0.0",
    "12345678901234567890.12345678901234567890",
    "123456789012345678901234567890",
    "1e400",
    "null",
    "true",
    '"v1.10"',
    '"\\u00e9\\/\\u0041"',
    '"a, \\"data\\": 1.10"',
    "[1.10,[],{}]",
    '{"a":1.50,"a":2.50}',
    '{"data":[1.10]}',
    '{"a":{"data":{"data":0.10}}}',
    '{"path":"/x","ms":12.5,"ok":true,"n":17,"none":null}',
    '{"long":"' + "x" * 5000 + '","n":[' + "1," * 5000 + "1.0]}",
    "[" * 998 + "]" * 998,
]
SHAPES = [
    f"{{{FIELDS},%s}}",
    f"{{%s,{FIELDS}}}",
    f'{{"x":{{"data":[1.1],"y":"data"}},{FIELDS},%s}}',
    f'{{{FIELDS},%s,"data":[1.1]}}',
    f'{{{FIELDS},%s,"dat\\u0061":[1.1]}}',
    f'{{{FIELDS},"\\"data":[1.1],%s,"z":"\\"data\\":[1.1]"}}',
    f'{{{FIELDS},"da ta":[1.1],%s,"é":"\\\\" }}',
]
KEYS = ['"data":%s', '"data" : %s ', '"data"\t:\n%s', '"\\u0064ata":%s']


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_data_equals_sent_text_in_any_position(text: str) -> None:
    payloads = [shape % (key % text) for shape in SHAPES for key in KEYS]
    assert data_of(*payloads) == [text] * len(payloads)
    assert [data_of(payload) for payload in payloads] == [[text]] * len(payloads)


def test_only_blanks_between_values_are_removed() -> None:
    sent = '{ "a b" : [ 1.10 ,\t" x  \\" y " ] ,\n"c":{ } }'
    (text,) = data_of(f'{{{FIELDS}, "data": {sent} }}')
    assert text == '{"a b":[1.10," x  \\" y "],"c":{}}'


def test_event_without_data_has_null() -> None:
    assert data_of(f"{{{FIELDS}}}", f'{{{FIELDS},"x":{{"data":1.10}}}}') == [None, None]


DECIMALS = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False).filter(lambda number: str(number) != "-0"),
    st.decimals(-10, 10, places=2),
    st.integers().map(Decimal),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: Decimal(repr(number))),
)
WORDS = st.text(max_size=5) | st.sampled_from(["data", '"data":1.1', "a b", "\\u0064ata", "}", '\\"'])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | DECIMALS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def format_json(value: Any, blanks: bool, ascii_only: bool) -> str:
    """Return JSON with the digits of the decimals."""
    if isinstance(value, Decimal):
        return str(value)
    comma, colon = (", ", ": ") if blanks else (",", ":")
    if isinstance(value, list):
        return f"[{comma.join(format_json(element, blanks, ascii_only) for element in value)}]"
    if isinstance(value, dict):
        pairs = (
            format_json(k, blanks, ascii_only) + colon + format_json(v, blanks, ascii_only) for k, v in value.items()
        )
        return f"{{{comma.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=ascii_only)


def parse_exactly(text: str) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.dictionaries(WORDS, VALUES, max_size=4), st.sampled_from(SHAPES), st.booleans(), st.booleans()),
        min_size=1,
        max_size=20,
    )
)
def test_data_keeps_every_digit(rows: list[tuple[dict[str, Any], str, bool, bool]]) -> None:
    sent = [format_json(value, blanks, ascii_only) for value, _, blanks, ascii_only in rows]
    payloads = [shape % f'"data":{text}' for text, (_, shape, _, _) in zip(sent, rows, strict=True)]
    for data, text, (value, _, _, ascii_only) in zip(data_of(*payloads), sent, rows, strict=True):
        assert data is not None
        assert parse_exactly(data) == parse_exactly(text) == value
        assert data == format_json(value, blanks=False, ascii_only=ascii_only)


def test_ordinary_events_are_parsed_as_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> str:
        raise AssertionError("a row was parsed alone")

    monkeypatch.setattr(data_text, "_single_data_member", never)
    value = {"path": "/catalogue/item", "user": "vip-1", "n": 17, "ok": True}
    ordinary = {"type": "a", "uuid": "u", "timestamp": 1, "data": value}
    payloads = [json.dumps(ordinary), json.dumps(ordinary, separators=(",", ":"))]
    payloads += [f'{{{FIELDS},"data":{{"ms":12.5}}}}', f'{{"data":{{"ms":12.5}},{FIELDS}}}']
    assert len(data_of(*payloads)) == 4


def test_missing_member_raises_key_error() -> None:
    assert find_member(' { "a" : 1.0 , "b":[2] }', "b") == "[2]"
    for text in ("{}", '{"a":1}', '{"a":{"b":1}}'):
        with pytest.raises(KeyError):
            find_member(text, "b")

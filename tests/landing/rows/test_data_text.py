"""The column ``data`` is the text that was sent, without blanks between values."""

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
    columns = event_columns(pa.array([one.encode() for one in payloads], pa.binary()), EventRules())
    assert columns["reason"].null_count == len(payloads)
    found: list[str | None] = columns["data"].to_pylist()
    return found


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
def test_data_is_letter_by_letter_what_was_sent_wherever_it_stands(text: str) -> None:
    payloads = [shape % (key % text) for shape in SHAPES for key in KEYS]
    assert data_of(*payloads) == [text] * len(payloads)
    assert [data_of(payload) for payload in payloads] == [[text]] * len(payloads)


def test_blanks_between_values_go_and_those_inside_of_texts_stay() -> None:
    sent = '{ "a b" : [ 1.10 ,\t" x  \\" y " ] ,\n"c":{ } }'
    (found,) = data_of(f'{{{FIELDS}, "data": {sent} }}')
    assert found == '{"a b":[1.10," x  \\" y "],"c":{}}'


def test_an_event_without_data_has_none() -> None:
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


def spelled(value: Any, blanks: bool, ascii_only: bool) -> str:
    """As JSON, with the digits that the decimals have."""
    if isinstance(value, Decimal):
        return str(value)
    comma, colon = (", ", ": ") if blanks else (",", ":")
    if isinstance(value, list):
        return f"[{comma.join(spelled(one, blanks, ascii_only) for one in value)}]"
    if isinstance(value, dict):
        pairs = (spelled(k, blanks, ascii_only) + colon + spelled(v, blanks, ascii_only) for k, v in value.items())
        return f"{{{comma.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=ascii_only)


def exact(text: str) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.dictionaries(WORDS, VALUES, max_size=4), st.sampled_from(SHAPES), st.booleans(), st.booleans()),
        min_size=1,
        max_size=20,
    )
)
def test_data_says_to_the_last_digit_what_the_payload_says(rows: list[tuple[dict[str, Any], str, bool, bool]]) -> None:
    sent = [spelled(value, blanks, ascii_only) for value, _, blanks, ascii_only in rows]
    payloads = [shape % f'"data":{text}' for text, (_, shape, _, _) in zip(sent, rows, strict=True)]
    for found, text, (value, _, _, ascii_only) in zip(data_of(*payloads), sent, rows, strict=True):
        assert found is not None
        assert exact(found) == exact(text) == value
        assert found == spelled(value, blanks=False, ascii_only=ascii_only)


def test_ordinary_events_are_not_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> str:
        raise AssertionError("a row was parsed by itself")

    monkeypatch.setattr(data_text, "_single_data_member", never)
    value = {"path": "/catalogue/item", "user": "vip-1", "n": 17, "ok": True}
    ordinary = {"type": "a", "uuid": "u", "timestamp": 1, "data": value}
    payloads = [json.dumps(ordinary), json.dumps(ordinary, separators=(",", ":"))]
    payloads += [f'{{{FIELDS},"data":{{"ms":12.5}}}}', f'{{"data":{{"ms":12.5}},{FIELDS}}}']
    assert len(data_of(*payloads)) == 4


def test_a_member_that_is_not_there_is_told() -> None:
    assert find_member(' { "a" : 1.0 , "b":[2] }', "b") == "[2]"
    for text in ("{}", '{"a":1}', '{"a":{"b":1}}'):
        with pytest.raises(KeyError):
            find_member(text, "b")

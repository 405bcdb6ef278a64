"""JSON messages as columns, conditions on fields, and marked texts."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given

from penstock.console.components.message_fields import (
    MAX_COLUMNS,
    MAX_FIELDS,
    columns_html,
    common_fields,
    fields_html,
    mark_text,
    meets,
    parse_condition,
    read_fields,
    text_to_search,
)
from tests.fuzzed import JSON, RAW


def entry(data: bytes, offset: int = 7) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {"offset": str(offset), "timestamp": "2026-11-22T10:11:12.345Z", "rawBytes": encoded}


def test_fields_are_named_by_their_path() -> None:
    document = {"type": "order", "data": {"user": "ann", "n": 1.5, "ok": True, "tags": ["a", "ü"], "none": None}}
    assert read_fields(entry(json.dumps(document).encode())) == {
        "type": "order",
        "data.user": "ann",
        "data.n": "1.5",
        "data.ok": "true",
        "data.tags": '["a", "ü"]',
        "data.none": "null",
    }


@pytest.mark.parametrize("data", [b"", b"plain", b"[1]", b"{", b'{"a":' * 100_000, b"\xff\xfe{"])
def test_other_messages_have_no_fields(data: bytes) -> None:
    assert read_fields(entry(data)) == {}
    assert "not a JSON object" in fields_html(entry(data), ())


def test_number_of_fields_and_columns_is_limited() -> None:
    fields = read_fields(entry(json.dumps({f"f{n}": n for n in range(1000)}).encode()))
    assert len(fields) == MAX_FIELDS
    assert len(common_fields([fields])) == MAX_COLUMNS


def test_columns_are_the_fields_of_most_messages_in_their_order() -> None:
    assert common_fields([{"b": "1", "a": "2"}, {"a": "3"}, {}]) == ["b", "a"]
    rare = {f"rare{n}": "" for n in range(MAX_COLUMNS)}
    assert common_fields([rare, {"a": "1"}, {"a": "2"}])[-1] == "a"


@given(RAW | JSON.map(lambda document: json.dumps(document).encode()))
def test_any_message_is_shown_as_columns(data: bytes) -> None:
    html = columns_html([entry(data)], "a", "7")
    assert html.count("<tr") == 2
    assert "<script" not in columns_html([entry(b'{"<script>": "<script>"}'), entry(b"<script>")], "", "")
    assert isinstance(fields_html(entry(data), ()), str)


def test_condition_selects_messages_with_exactly_this_value() -> None:
    ann = entry(b'{"data": {"user": "ann", "n": 1e3}}')
    assert meets(ann, {"data.user": "ann", "data.n": "1000.0"})
    assert not meets(ann, {"data.user": "an"})
    assert not meets(ann, {"user": "ann"})
    assert meets(entry(b"anything"), {})


@pytest.mark.parametrize(("text", "condition"), [("a.b = c=d", ("a.b", "c=d")), ("a=", ("a", "")), ("plain", None)])
def test_condition_is_parsed(text: str, condition: tuple[str, str] | None) -> None:
    assert parse_condition(text) == condition


@pytest.mark.parametrize(
    ("value", "is_certain"),
    [
        ("ann", True),
        ("user-37", True),
        ("42", True),
        ("1000.0", False),
        ('say "a"', False),
        ("ü", False),
        ("a/b", False),
    ],
)
def test_only_values_with_one_spelling_are_searched_for(value: str, is_certain: bool) -> None:
    assert text_to_search({"field": value}) == (value if is_certain else "")


def test_value_of_a_condition_is_marked_in_its_column_alone() -> None:
    html = columns_html([entry(b'{"user": "ann", "friend": "ann", "ms": 1}')], "", "", {"user": "ann"})
    assert html.count("<mark>") == 1
    assert "<td><mark>ann</mark></td><td>ann</td><td>1</td>" in html


def test_each_occurrence_is_marked_and_all_text_escaped() -> None:
    assert mark_text("<kite> kite Kite", "kite") == "&lt;<mark>kite</mark>&gt; <mark>kite</mark> Kite"
    assert mark_text("a<b", "<") == "a<mark>&lt;</mark>b"
    assert mark_text("a<b", "") == "a&lt;b"

"""HTML of one message."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.components.message_view import MAX_CHARS, line, payload, preview, view_message
from tests.fuzzed import JSON, RAW, json_texts


def text_of(data: bytes) -> str:
    entry = {"offset": "7", "timestamp": "2026-11-22T00:00:00Z", "rawBytes": base64.b64encode(data).decode()}
    view = view_message("t", entry)
    return view.text


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900])
def test_deeply_nested_message_is_shown(data: bytes) -> None:
    assert f"{data[:1].decode()}" in text_of(data)
    assert len(text_of(data)) < 4 * MAX_CHARS


def test_long_message_is_cut_with_a_note() -> None:
    assert "... and 1,000 more characters" in text_of(b"x" * (MAX_CHARS + 1000))


def test_json_is_indented_and_escaped() -> None:
    assert "&quot;a&quot;: &quot;&lt;b&gt;&quot;" in text_of(json.dumps({"a": "<b>"}).encode())


@given(RAW | json_texts("a"))
def test_any_message_is_shown(data: bytes) -> None:
    assert ("<pre" in text_of(data)) == bool(data)
    assert preview({"rawBytes": base64.b64encode(data).decode()}).count("\n") == 0


def test_message_has_its_address_hex_and_headers() -> None:
    entry = {
        "offset": "1007",
        "timestamp": "2026-11-22T10:11:12.345Z",
        "raw_bytes": base64.b64encode(b"hi<").decode(),
        "annotations": {"tags": "a\0b", "<i>": "<b>"},
        "key": base64.b64encode(b"k1").decode(),
    }
    view = view_message("a/b", entry)
    assert "offset 1,007, 2026-11-22T10:11:12.345Z, 3 B" in view.location
    assert 'href="/find?q=a/b%3A1007"' in view.location
    assert "68 69 3c" in view.hex
    assert "<code>a</code>, <code>b</code>" in view.headers
    assert "&lt;b&gt;" in view.headers
    assert "<code>k1</code>" in view.headers
    assert line(entry) == "1007  10:11:12.345  hi<"


@given(st.dictionaries(st.sampled_from(["rawBytes", "raw_bytes", "protobuf"]), JSON))
def test_any_entry_has_a_payload(entry: dict[str, Any]) -> None:
    assert isinstance(payload(entry), bytes)

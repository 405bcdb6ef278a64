"""One message whole: whatever is in it, it is shown."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.message_view import LONGEST, line, payload, preview, whole
from tests.fuzzed import JSON, RAW, json_texts


def shown(data: bytes) -> str:
    entry = {"offset": "7", "timestamp": "2026-11-22T00:00:00Z", "rawBytes": base64.b64encode(data).decode()}
    view = whole("t", entry)
    return view.text


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900])
def test_a_message_of_brackets_is_shown(data: bytes) -> None:
    assert f"{data[:1].decode()}" in shown(data)
    assert len(shown(data)) < 4 * LONGEST


def test_a_long_message_is_cut_and_says_so() -> None:
    assert "... and 1,000 characters more" in shown(b"x" * (LONGEST + 1000))


def test_json_is_shown_in_lines_and_nothing_is_markup() -> None:
    assert "&quot;a&quot;: &quot;&lt;b&gt;&quot;" in shown(json.dumps({"a": "<b>"}).encode())


@given(RAW | json_texts("a"))
def test_any_message_is_shown(data: bytes) -> None:
    assert ("<pre>" in shown(data)) == bool(data)
    assert preview({"rawBytes": base64.b64encode(data).decode()}).count("\n") == 0


def test_a_message_has_its_address_its_hex_and_its_headers() -> None:
    entry = {
        "offset": "1007",
        "timestamp": "2026-11-22T10:11:12.345Z",
        "raw_bytes": base64.b64encode(b"hi<").decode(),
        "annotations": {"tags": "a\0b", "<i>": "<b>"},
        "key": base64.b64encode(b"k1").decode(),
    }
    view = whole("a/b", entry)
    assert "offset 1,007, 2026-11-22T10:11:12.345Z, 3 B" in view.place
    assert 'href="/find?q=a/b%3A1007"' in view.place
    assert "68 69 3c" in view.hex
    assert "<code>a</code>, <code>b</code>" in view.headers
    assert "&lt;b&gt;" in view.headers
    assert "<code>k1</code>" in view.headers
    assert line(entry) == "1007  10:11:12.345  hi<"


@given(st.dictionaries(st.sampled_from(["rawBytes", "raw_bytes", "protobuf"]), JSON))
def test_any_entry_has_a_payload(entry: dict[str, Any]) -> None:
    assert isinstance(payload(entry), bytes)

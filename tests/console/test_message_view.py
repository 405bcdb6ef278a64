"""One message whole: whatever is in it, it is shown."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.pages.topics import LONGEST, payload, preview, whole
from tests.fuzzed import JSON, RAW, json_texts


def shown(data: bytes) -> str:
    entry = {"offset": "7", "timestamp": "2026-11-22T00:00:00Z", "rawBytes": base64.b64encode(data).decode()}
    return whole(entry)


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
    assert "<pre>" in shown(data)
    assert preview({"rawBytes": base64.b64encode(data).decode()}).count("\n") == 0


@given(st.dictionaries(st.sampled_from(["rawBytes", "raw_bytes", "protobuf"]), JSON))
def test_any_entry_has_a_payload(entry: dict[str, Any]) -> None:
    assert isinstance(payload(entry), bytes)

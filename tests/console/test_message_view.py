"""One message whole: whatever is in it, it is shown."""

from __future__ import annotations

import base64
import json

import pytest

from penstock.console.pages.topics import LONGEST, whole


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

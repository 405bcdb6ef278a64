"""Fixes for payloads in quarantine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from penstock.upkeep.quarantine.fixes import BadFix, apply_fix, load_fix, replace_text, set_field
from tests.fuzzed import RAW, json_texts


def test_unknown_fix_is_refused_by_name() -> None:
    assert load_fix("json:dumps")
    for named in ("json:nothing", "no_such_module:x", "json", "json:__doc__"):
        with pytest.raises(BadFix, match=named):
            load_fix(named)


def test_replace_text_changes_only_matching_payloads() -> None:
    fix = replace_text(",}", "}")
    assert (fix(b'{"a": 1,}'), fix(b"{}")) == (b'{"a": 1}', None)
    with pytest.raises(BadFix):
        replace_text("", "x")


def test_set_field_changes_only_objects() -> None:
    fix = set_field("uuid", "made-{hash}")
    first, second = fix(b'{"type": "a"}'), fix(b'{"type": "b"}')
    assert first
    assert second
    assert json.loads(first)["type"] == "a"
    assert json.loads(first)["uuid"].startswith("made-")
    assert json.loads(first)["uuid"] != json.loads(second)["uuid"]
    assert fix(b'{"type": "a"}') == first, "the same payload gets the same uuid, so that it stays one event"
    assert (fix(b"[1]"), fix(b"{")) == (None, None)
    assert json.loads(set_field("timestamp", "{now}")(b"{}") or b"")["timestamp"] > 1_600_000_000_000


@given(RAW | json_texts("uuid"))
def test_fixes_accept_any_payload(payload: bytes) -> None:
    for fix in (replace_text("a", "b"), set_field("uuid", "{hash}")):
        assert isinstance(apply_fix(fix, payload, "t:1"), bytes | None)


def test_failing_fix_names_message() -> None:
    def fails(payload: bytes) -> Any:
        return json.loads(payload)["x"]

    with pytest.raises(BadFix, match="the fix failed on t:1: KeyError"):
        apply_fix(fails, b"{}", "t:1")
    with pytest.raises(BadFix, match="returned int for t:2"):
        apply_fix(fails, b'{"x": 1}', "t:2")

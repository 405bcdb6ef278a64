"""What would become of messages that are sent back."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.landing.rows.json_events import EventRules
from penstock.upkeep.quarantine.fixes import keep_payload, replace_text, set_field
from penstock.upkeep.quarantine.preview import preview
from penstock.upkeep.quarantine.send_back import Row


def row(payload: bytes) -> Row:
    return Row("t", None, 1, datetime(2026, 1, 1, tzinfo=UTC), "udp", "bad_json", payload, None, [])


BROKEN = row(b'{"type": "a", "uuid": "1", "timestamp": 1,}')
NAMELESS = row(b'{"type": "a", "timestamp": 1}')


def becomes(fix: object, *rows: Row, rules: EventRules | None = None) -> list[str]:
    return [one.becomes for one in preview(rows, fix, rules or EventRules())]  # type: ignore[arg-type]


def test_a_sample_says_what_it_would_be() -> None:
    assert becomes(keep_payload, BROKEN, NAMELESS) == ["bad_json", "missing_uuid"]
    assert becomes(replace_text(",}", "}"), BROKEN, NAMELESS) == ["event", "skipped by the fix"]
    assert becomes(set_field("uuid", "{hash}"), NAMELESS) == ["event"]
    assert becomes(replace_text("{", "x{"), BROKEN) == ["message"]


def test_the_rules_of_the_pipeline_are_those_of_the_preview() -> None:
    assert becomes(replace_text(",}", "}"), BROKEN, rules=EventRules(("b",))) == ["type_not_allowed"]


def test_a_fix_that_fails_is_told_and_the_others_are_shown() -> None:
    def fails(payload: bytes) -> bytes:
        if b"uuid" in payload:
            raise RuntimeError("no")
        return b"x"

    found = preview([BROKEN, NAMELESS], fails, EventRules())
    assert found[0].becomes == "the fix failed on t:1: RuntimeError: no"
    assert [one.lands for one in found] == [False, True]

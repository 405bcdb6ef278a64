"""Preview of the messages that would be sent back."""

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


def preview_outcomes(fix: object, *rows: Row, rules: EventRules | None = None) -> list[str]:
    return [sample.becomes for sample in preview(rows, fix, rules or EventRules())]  # type: ignore[arg-type]


def test_preview_shows_outcome_of_each_message() -> None:
    assert preview_outcomes(keep_payload, BROKEN, NAMELESS) == ["bad_json", "missing_uuid"]
    assert preview_outcomes(replace_text(",}", "}"), BROKEN, NAMELESS) == ["event", "skipped by the fix"]
    assert preview_outcomes(set_field("uuid", "{hash}"), NAMELESS) == ["event"]
    assert preview_outcomes(replace_text("{", "x{"), BROKEN) == ["message"]


def test_preview_applies_rules_of_pipeline() -> None:
    assert preview_outcomes(replace_text(",}", "}"), BROKEN, rules=EventRules(("b",))) == ["type_not_allowed"]


def test_preview_shows_failing_fix_next_to_other_messages() -> None:
    def fails(payload: bytes) -> bytes:
        if b"uuid" in payload:
            raise RuntimeError("no")
        return b"x"

    samples = preview([BROKEN, NAMELESS], fails, EventRules())
    assert samples[0].becomes == "the fix failed on t:1: RuntimeError: no"
    assert [sample.lands for sample in samples] == [False, True]

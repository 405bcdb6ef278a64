"""What somebody typed into a box."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.console.asked import parameters_of, place_of, time_of


@pytest.mark.parametrize("text", ["k:user", " (k:a v:b) OR k:c", "NOT v:5", "not (v:5)", "K:user"])
def test_what_begins_as_a_filter_is_one(text: str) -> None:
    assert parameters_of(text) == {"filter": text}


@pytest.mark.parametrize("text", ["kite", "hello (world", '{"k": 1}', "nothing v:5", "*"])
def test_all_else_is_a_text(text: str) -> None:
    assert parameters_of(text) == {"text": text}


def test_nothing_asks_for_nothing() -> None:
    assert parameters_of("  ") == {}


def test_a_place_is_an_offset_or_a_time() -> None:
    assert place_of("1,234") == {"offset": "1234"}
    assert place_of("2026-11-22 14:05") == {"timestamp": "2026-11-22T14:05:00Z"}
    assert place_of("2026-11-22T14:05:01.5Z") == {"timestamp": "2026-11-22T14:05:01.500000Z"}
    assert place_of("noon") is None
    assert place_of("25:99") is None
    assert place_of("9" * 30) is None


def test_a_time_without_a_day_is_today_s() -> None:
    assert time_of("14:05") == datetime.now(UTC).replace(hour=14, minute=5, second=0, microsecond=0)

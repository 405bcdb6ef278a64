"""Parsing of search boxes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.console.components.search_input import parse_target, parse_time, search_parameters


@pytest.mark.parametrize("text", ["k:user", " (k:a v:b) OR k:c", "NOT v:5", "not (v:5)", "K:user"])
def test_filter_prefix_starts_a_filter(text: str) -> None:
    assert search_parameters(text) == {"filter": text}


@pytest.mark.parametrize("text", ["kite", "hello (world", '{"k": 1}', "nothing v:5", "*"])
def test_other_input_is_a_text_search(text: str) -> None:
    assert search_parameters(text) == {"text": text}


def test_empty_input_has_no_parameters() -> None:
    assert search_parameters("  ") == {}


def test_target_is_an_offset_or_a_time() -> None:
    assert parse_target("1,234") == {"offset": "1234"}
    assert parse_target("2026-11-22 14:05") == {"timestamp": "2026-11-22T14:05:00Z"}
    assert parse_target("2026-11-22T14:05:01.5Z") == {"timestamp": "2026-11-22T14:05:01.500000Z"}
    assert parse_target("noon") is None
    assert parse_target("25:99") is None
    assert parse_target("9" * 30) is None


def test_time_without_date_is_of_today() -> None:
    assert parse_time("14:05") == datetime.now(UTC).replace(hour=14, minute=5, second=0, microsecond=0)

"""Waiting until a table is complete."""

from __future__ import annotations

from datetime import datetime

import pytest

from penstock.cli.tables.wait import format_watermarks, is_complete, parse_moment, table_watermarks

ANSWER = {
    "tables": [
        {"table": "events", "topic": "a", "until": 600, "landed": 5, "share": 1.0},
        {"table": "events", "topic": "b", "until": 300, "landed": 5, "share": 0.9998},
        {"table": "syslog", "topic": "b", "until": 900, "landed": 5, "share": 1.0},
    ]
}


def test_table_is_complete_when_all_topics_are() -> None:
    both = table_watermarks(ANSWER, "events", None)
    assert is_complete(both, 300)
    assert not is_complete(both, 301)
    assert is_complete(table_watermarks(ANSWER, "events", "a"), 600)


def test_empty_table_is_not_complete() -> None:
    assert not is_complete(table_watermarks(ANSWER, "messages", None), 0)
    assert format_watermarks([]) == "nothing has landed yet"


def test_wait_prints_how_complete_a_table_is() -> None:
    assert format_watermarks(table_watermarks(ANSWER, "events", "b")).endswith(": 99.98 %")


def test_parse_moment_takes_times_of_today_and_iso_times() -> None:
    today = datetime.now().replace(hour=14, minute=0, second=0, microsecond=0)
    assert parse_moment("14:00") == today.timestamp()
    assert parse_moment("1970-01-01T00:10:00+00:00") == 600
    with pytest.raises(ValueError, match="noon"):
        parse_moment("noon")

"""Waiting until a table is complete."""

from __future__ import annotations

from datetime import datetime

import pytest

from penstock.cli.tables.wait import complete, describe, marks, moment

ANSWER = {
    "tables": [
        {"table": "events", "topic": "a", "until": 600, "landed": 5, "share": 1.0},
        {"table": "events", "topic": "b", "until": 300, "landed": 5, "share": 0.9998},
        {"table": "syslog", "topic": "b", "until": 900, "landed": 5, "share": 1.0},
    ]
}


def test_all_topics_of_a_table_must_have_come_so_far() -> None:
    both = marks(ANSWER, "events", None)
    assert complete(both, 300)
    assert not complete(both, 301)
    assert complete(marks(ANSWER, "events", "a"), 600)


def test_a_table_that_nothing_has_landed_in_is_not_complete() -> None:
    assert not complete(marks(ANSWER, "messages", None), 0)
    assert describe([]) == "nothing has landed yet"


def test_it_is_said_how_complete_a_table_is() -> None:
    assert describe(marks(ANSWER, "events", "b")).endswith(": 99.98 %")


def test_times_of_today_and_iso_times_are_understood() -> None:
    today = datetime.now().replace(hour=14, minute=0, second=0, microsecond=0)
    assert moment("14:00") == today.timestamp()
    assert moment("1970-01-01T00:10:00+00:00") == 600
    with pytest.raises(ValueError, match="noon"):
        moment("noon")

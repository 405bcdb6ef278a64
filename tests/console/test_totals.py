"""The few numbers of the first page."""

from __future__ import annotations

from penstock.console.totals import totals
from tests.console.console_balance import balance


def test_what_was_accepted_is_what_became_of_it() -> None:
    book = balance(95)
    book["routes"] = [route | {"accepted": 95} for route in book["routes"] if route["source"] == "in"]
    assert totals(book) == {"accepted": 95, "landed": 82, "quarantined": 2, "duplicates": 1, "on the way": 10}


def test_a_message_with_two_handlers_is_accepted_once() -> None:
    book = balance(95)
    book["routes"].append(book["routes"][0] | {"handler": "console"})
    assert totals(book)["accepted"] == 95 + 5


def test_without_a_pipeline_messages_are_in_the_log_only() -> None:
    book = balance(95)
    book["pending"] = 0
    book["topics"][0] |= {"read_by_pipeline": False, "fates": {}, "pending": 0}
    assert totals(book) == {"accepted": 100, "landed": 0, "in the log only": 95, "on the way": 0}

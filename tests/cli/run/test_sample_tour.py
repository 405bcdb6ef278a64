"""What `up` and `balance` show, and how a rebuilt balance is compared."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from penstock.cli.balance_tables import show
from penstock.cli.run.sample_tour import fates, growth, settled
from penstock.counts import Counts
from penstock.ledger.rebuild import differences

TOPIC = {"topic": "events", "end": 3, "logged": 3, "fates": {"duplicate": 1, "landed.event": 2}, "pending": 0}
ROUTE = {"source": "in", "handler": "log", "accepted": 4, "delivered": 3, "policy_drop": 1, "in_buffer": 0}
BALANCE: dict[str, Any] = {
    "unaccounted": 0,
    "pending": 0,
    "listeners": [{"name": "in", "counts": {"taken": 4}, "sent": None, "network_lost": None, "books": []}],
    "routes": [ROUTE | {"handler_failed": 0, "corrupt": 0, "unaccounted": 0}],
    "topics": [TOPIC | {"read_by_pipeline": True, "unaccounted": 0}],
}


def shown(document: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=120)
    show(document, console.print)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_balance_names_what_became_of_the_messages() -> None:
    text = shown(BALANCE)
    assert "duplicate 1, landed.event 2" in text
    assert "delivered 3, policy_drop 1" in text
    assert "unknown  sent" in text


def test_an_open_book_is_shouted() -> None:
    listener = BALANCE["listeners"][0] | {"books": [{"book": "datagrams", "left": 4, "right": 3}]}
    assert "OPEN: the book of datagrams does not close" in shown(BALANCE | {"listeners": [listener]})


def test_fates_are_the_counts_of_listeners_and_topics_together() -> None:
    assert fates(BALANCE) == {"logged": 3, "taken": 4, "duplicate": 1, "landed.event": 2}
    empty = {"listeners": [], "topics": []}
    assert growth(BALANCE, empty, Counts({"duplicate": 9, "missing": 1})) == {"duplicate": 1, "missing": 0}


def test_the_sample_is_settled_once_all_of_it_came_and_nothing_is_on_its_way() -> None:
    empty: dict[str, Any] = {"listeners": [], "topics": []}
    goals = Counts({"landed.event": 2, "duplicate": 1})
    assert settled(BALANCE, empty, goals)
    assert not settled(BALANCE | {"pending": 1}, empty, goals)
    assert not settled(BALANCE, empty, goals + Counts({"landed.syslog": 1}))


def test_a_rebuilt_balance_that_agrees_has_no_differences() -> None:
    assert differences(BALANCE, BALANCE) == []
    other = BALANCE | {"topics": [BALANCE["topics"][0] | {"logged": 2}]}
    (line,) = differences(BALANCE, other)
    assert line.startswith("topics events:")

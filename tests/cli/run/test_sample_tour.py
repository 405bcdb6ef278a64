"""Output of `up` and `balance`, and the comparison with a rebuilt balance."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.balance_tables import show
from penstock.cli.run.sample_tour import Tour, all_counts, growth, is_settled
from penstock.config import load
from penstock.counts import Counts
from penstock.ledger.rebuild import differences
from penstock.testing.pipe import Pipe

TOPIC = {"topic": "events", "end": 3, "logged": 3, "fates": {"duplicate": 1, "landed.event": 2}, "pending": 0}
ROUTE = {"source": "in", "handler": "log", "accepted": 4, "delivered": 3, "policy_drop": 1, "in_buffer": 0}
LOG_HANDLER = '[[listener.handlers]]\ntype = "log"\ntopic = "web"\n'
BALANCE: dict[str, Any] = {
    "unaccounted": 0,
    "pending": 0,
    "listeners": [{"name": "in", "counts": {"taken": 4}, "sent": None, "network_lost": None, "books": []}],
    "routes": [ROUTE | {"handler_failed": 0, "corrupt": 0, "unaccounted": 0}],
    "topics": [TOPIC | {"read_by_pipeline": True, "unaccounted": 0}],
}


def render_balance(document: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=120)
    show(document, console.print)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_directions_have_a_command_for_an_http_listener(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pipe = Pipe(tmp_path)
    pipe.configure('[[listener]]\nname = "web"\nprotocol = "http"\nport = 0\n' + LOG_HANDLER)
    pipe.start()
    try:
        Tour(load(pipe.config, pipe.overrides), spark=False).print_directions()
        (command,) = (line for line in capfd.readouterr().out.splitlines() if "curl " in line)
        answer = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    finally:
        pipe.stop()
    assert json.loads(answer.stdout) == {"accepted": 1, "refused": 0}


def test_balance_shows_fates_of_messages() -> None:
    text = render_balance(BALANCE)
    assert "duplicate 1, landed.event 2" in text
    assert "delivered 3, policy_drop 1" in text
    assert "unknown  sent" in text


def test_balance_reports_an_open_book() -> None:
    listener = BALANCE["listeners"][0] | {"books": [{"book": "datagrams", "left": 4, "right": 3}]}
    assert "OPEN: the book of datagrams does not close" in render_balance(BALANCE | {"listeners": [listener]})


def test_all_counts_sums_listeners_and_topics() -> None:
    assert all_counts(BALANCE) == {"logged": 3, "taken": 4, "duplicate": 1, "landed.event": 2}
    empty = {"listeners": [], "topics": []}
    assert growth(BALANCE, empty, Counts({"duplicate": 9, "missing": 1})) == {"duplicate": 1, "missing": 0}


def test_sample_is_settled_when_goals_are_reached_and_nothing_is_pending() -> None:
    empty: dict[str, Any] = {"listeners": [], "topics": []}
    goals = Counts({"landed.event": 2, "duplicate": 1})
    assert is_settled(BALANCE, empty, goals)
    assert not is_settled(BALANCE | {"pending": 1}, empty, goals)
    assert not is_settled(BALANCE, empty, goals + Counts({"landed.syslog": 1}))


def test_equal_balances_have_no_differences() -> None:
    assert differences(BALANCE, BALANCE) == []
    second = BALANCE | {"topics": [BALANCE["topics"][0] | {"logged": 2}]}
    (line,) = differences(BALANCE, second)
    assert line.startswith("topic events:")

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from penstock.cli import progress
from penstock.cli.progress import Progress


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "errors", Console(file=screen, force_terminal=True, width=80))
    monkeypatch.setattr(progress, "PATIENCE", 0.1)
    return screen


def test_what_takes_long_is_shown_with_how_far_it_is(screen: io.StringIO) -> None:
    with Progress("checking") as shown:
        end = time.monotonic() + 10
        while "events, 3 of 12" not in screen.getvalue():
            shown.tell("events, 3 of 12")
            assert time.monotonic() < end
            time.sleep(0.05)
    assert "checking: events" in screen.getvalue()


def test_what_is_quick_shows_nothing(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 60)
    with Progress("checking") as shown:
        shown.tell("events")
    assert "checking" not in screen.getvalue()


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "errors", Console(file=screen))
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    with Progress("checking") as shown:
        shown.tell("events")
        time.sleep(0.1)
    with Progress("checking", shown=False):
        time.sleep(0.1)
    assert screen.getvalue() == ""

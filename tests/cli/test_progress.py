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
    monkeypatch.setattr(progress, "DELAY_S", 0.1)
    return screen


def test_long_work_shows_progress(screen: io.StringIO) -> None:
    with Progress("checking") as printed:
        end = time.monotonic() + 10
        while "events, 3 of 12 (0 s)" not in screen.getvalue():
            printed.update("events, 3 of 12")
            assert time.monotonic() < end
            time.sleep(0.05)
    assert "checking: events" in screen.getvalue()


def test_work_with_plain_lines_reports_seconds_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "errors", Console(file=screen))
    monkeypatch.setattr(progress, "DELAY_S", 0.01)
    with Progress("starting", has_plain_lines=True) as printed:
        printed.update("console")
        end = time.monotonic() + 10
        while "\n" not in screen.getvalue():
            assert time.monotonic() < end
            time.sleep(0.01)
    assert screen.getvalue() == "starting: console (0 s)\n"


def test_quick_work_shows_no_progress(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY_S", 60)
    with Progress("checking") as printed:
        printed.update("events")
    assert "checking" not in screen.getvalue()


def test_progress_is_silent_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "errors", Console(file=screen))
    monkeypatch.setattr(progress, "DELAY_S", 0.01)
    with Progress("checking") as printed:
        printed.update("events")
        time.sleep(0.1)
    with Progress("checking", is_shown=False):
        time.sleep(0.1)
    assert screen.getvalue() == ""

"""A record is one line with time and component; the same warning comes once a minute."""

from __future__ import annotations

import logging
import re

import pytest

from penstock.process.reporting import REPEAT_EVERY, LineFormatter, OnceAMinute, configure


def test_a_process_reports_with_time_and_component(capsys: pytest.CaptureFixture[str]) -> None:
    configure("receiver events-udp")
    logging.getLogger("penstock.ingest").info("started with %d slots", 8)
    logging.getLogger("penstock.ingest").debug("not shown")
    logging.getLogger("somebody.else").info("not shown")
    logging.getLogger("somebody.else").warning("shown")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "receiver events-udp: started with 8 slots",
        "receiver events-udp: shown",
    ]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)


def test_an_exception_is_one_line_that_says_where_it_was_raised(capsys: pytest.CaptureFixture[str]) -> None:
    configure("log daemon")
    try:
        raise ValueError("no\ngood")
    except ValueError:
        logging.getLogger("penstock.log").exception("the log was not swept")
    (line,) = capsys.readouterr().err.splitlines()
    assert "log daemon: the log was not swept ValueError: no; good (test_an_exception" in line


def record(level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord("penstock", level, __file__, 1, text, None, None)


def test_the_same_warning_passes_once_a_minute_and_then_says_how_often_it_was_held_back() -> None:
    now = [0.0]
    limit = OnceAMinute(lambda: now[0])
    passed: list[str] = []
    for second in (0.0, 1.0, REPEAT_EVERY - 1, REPEAT_EVERY + 1):
        now[0] = second
        if limit.filter(again := record(logging.WARNING, "it hurts")):
            passed.append(LineFormatter("x").format(again).partition(": ")[2])
    assert passed == ["it hurts", "it hurts (2 times more since it was last reported)"]
    assert limit.filter(record(logging.WARNING, "here too"))


def test_what_is_no_warning_always_passes() -> None:
    limit = OnceAMinute(lambda: 0.0)
    assert all(limit.filter(record(logging.INFO, "the configuration is reloaded")) for _ in range(3))

"""A record is one line with time and component; the same warning comes once a minute."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.process.reporting import REPEAT_EVERY, SAID_AGAIN, LineFormatter, OnceAMinute, configure, starting


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


@pytest.mark.parametrize("argv", [["x", "1"], ["x", "1", "0"], ["x", "1", str(SAID_AGAIN)]])
def test_what_keeps_a_process_from_starting_is_one_line_and_status_1(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", argv)
    configure("receiver events")
    with pytest.raises(SystemExit) as ended, starting("cannot start in /data"):
        raise OSError(28, "No space left on device")
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("receiver events: cannot start in /data: [Errno 28] No space left on device")


def test_starts_in_vain_that_follow_each_other_are_not_all_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("receiver events")
    for again in range(1, SAID_AGAIN):
        monkeypatch.setattr("sys.argv", ["x", "1", str(again)])
        with pytest.raises(SystemExit), starting("cannot start"):
            raise OSError(28, "No space left on device")
    assert capsys.readouterr().err == ""


def test_a_receiver_that_gets_no_space_says_so_in_one_line(tmp_path: Path) -> None:
    """RLIMIT_FSIZE in the place of a full disk."""
    listener = {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "t"}]}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        task = {"listener": listener, "buffer": {}, "folder": str(tmp_path), "wakes": [], "socket": sock.fileno()}
        done = subprocess.run(
            [
                "sh",
                "-c",
                'ulimit -f 100; exec "$@"',
                "sh",
                sys.executable,
                "-m",
                "penstock.ingest.receiver",
                str(os.getpid()),
            ],
            input=json.dumps(task),
            pass_fds=[sock.fileno()],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    (line,) = done.stderr.splitlines()
    assert f"receiver events: cannot start in {tmp_path}: [Errno 27] File too large" in line
    assert done.returncode == 1

"""The sample: real lines where they are readable, else made-up ones, the same each time."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.cli.run.sample_messages import event, log_lines, made_up_lines


def test_readable_logs_are_taken_and_others_left(tmp_path: Path) -> None:
    (tmp_path / "secret.log").write_text("hidden\n" * 2000)
    (tmp_path / "secret.log").chmod(0o600)
    assert log_lines(tmp_path)[1] == "lines made for this purpose"
    (tmp_path / "dpkg.log").write_text("".join(f"line {number}\n" for number in range(3000)))
    (tmp_path / "dpkg.log").chmod(0o644)
    lines, source = log_lines(tmp_path)
    assert source == str(tmp_path / "dpkg.log")
    assert (len(lines), lines[-1]) == (1999, b"line 2999")


def test_made_up_lines_are_the_same_each_time() -> None:
    assert made_up_lines(100) == made_up_lines(100)
    assert len(made_up_lines(100)) == 100


def test_an_event_is_one_of_the_kind_that_lands() -> None:
    made = json.loads(event(b"2026-01-01 status installed \xff", 3, "run", [b"a", b"b"]))
    assert made["type"] == "log_status"
    assert set(made) == {"type", "uuid", "host", "timestamp", "data"}
    assert made["data"]["around"] == ["a", "b"]
    assert made["uuid"] == json.loads(event(b"x", 3, "run"))["uuid"]

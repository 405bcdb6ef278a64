"""The sample: lines of readable logs, or made-up ones that are deterministic."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.cli.run.sample_messages import event_of_line, log_lines, made_up_lines


def test_log_lines_reads_only_world_readable_logs(tmp_path: Path) -> None:
    (tmp_path / "secret.log").write_text("hidden\n" * 2000)
    (tmp_path / "secret.log").chmod(0o600)
    assert log_lines(tmp_path)[1] == "made-up lines"
    (tmp_path / "dpkg.log").write_text("".join(f"line {number}\n" for number in range(3000)))
    (tmp_path / "dpkg.log").chmod(0o644)
    lines, source = log_lines(tmp_path)
    assert source == str(tmp_path / "dpkg.log")
    assert (len(lines), lines[-1]) == (1999, b"line 2999")


def test_made_up_lines_are_deterministic() -> None:
    assert made_up_lines(100) == made_up_lines(100)
    assert len(made_up_lines(100)) == 100


def test_event_of_line_is_a_valid_event() -> None:
    built = json.loads(event_of_line(b"2026-01-01 status installed \xff", 3, "run", [b"a", b"b"]))
    assert built["type"] == "log_status"
    assert set(built) == {"type", "uuid", "host", "timestamp", "data"}
    assert built["data"]["around"] == ["a", "b"]
    assert built["uuid"] == json.loads(event_of_line(b"x", 3, "run"))["uuid"]

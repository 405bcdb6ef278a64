"""``penstock pipeline query``: a failed query prints Spark's reason and nothing else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import run

QUERY = [sys.executable, "-m", "penstock.cli.main", "pipeline", "query"]


def on_a_terminal(*arguments: str, folder: Path) -> str:
    """Return the output of a command on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*QUERY, *arguments], stdout=theirs, stderr=theirs, stdin=theirs, cwd=folder)
    os.close(theirs)
    written = b""
    try:
        while piece := os.read(ours, 4096):
            written += piece
    except OSError:  # Linux says so when the other side is closed
        pass
    finally:
        os.close(ours)
        assert process.wait(120) == 1
    return written.decode()


@pytest.mark.spark
def test_syntax_error_of_query_is_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "penstock-data").mkdir()
    printed, _, after = on_a_terminal("selec x", folder=tmp_path).partition(
        "[PARSE_SYNTAX_ERROR] Syntax error at or near"
    )
    assert printed.endswith("penstock: ")
    assert "\x1b[2K" not in after, "the line is wiped away"
    assert after.count("\n") == 1
    assert not re.search("WARN|incubator", printed + after)


@pytest.mark.spark
def test_failed_jvm_start_prints_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "penstock-data").mkdir()
    completed = run("pipeline", "query", "select 1", "-o", "pipeline.spark.driver.memory=lots", folder=tmp_path)
    assert completed.status == 1
    assert "penstock: Invalid maximum heap size: -Xmxlots" in completed.errors.splitlines()
    assert all(line.startswith("penstock: ") for line in completed.errors.splitlines())

"""``penstock serve`` takes slogd's flags, as the documentation has them."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.command_line import build
from penstock.cli.run import serve
from penstock.config import Settings
from penstock.testing.pipe import free_ports
from tests.cli.command_line import run

PAGE = Path(__file__).parents[3] / "docs" / "coming.md"


def test_serve_accepts_the_flags_of_slogd(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Settings] = []
    monkeypatch.setattr(serve, "run", lambda settings, *_: ran.append(settings))
    (line,) = re.findall(r"^penstock (serve --.*)$", PAGE.read_text(), re.MULTILINE)
    answer = CliRunner().invoke(build(["serve"]), line.split(), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    (settings,) = ran
    assert (settings.log.http, settings.log.grpc) == ("localhost:8080", "localhost:9090")
    assert settings.data_dir == Path("data")


def test_sql_server_needs_a_free_address(tmp_path: Path) -> None:
    completed = run("postgres", "-o", f"data_dir={tmp_path}", folder=tmp_path)
    assert completed.status == 1
    assert "sql.postgres has no address: penstock postgres --address 127.0.0.1:8847" in completed.errors
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        completed = run("postgres", "--address", address, "-o", f"data_dir={tmp_path}", folder=tmp_path)
    assert completed.status == 1
    assert f"sql.postgres: cannot listen on {address}: Address already in use" in completed.errors


def test_sql_server_shows_its_start_on_a_terminal(tmp_path: Path) -> None:
    at_once = "from penstock.cli import main, progress; progress.DELAY_S = 0; main.main()"
    options = ["--address", f"127.0.0.1:{free_ports(1)[0]}", "-o", f"data_dir={tmp_path}"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", at_once, "postgres", *options], stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    while b"are served at" not in written:
        written += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    os.close(ours)
    assert b"starting the SQL server (0 s)" in written
    assert written.rindex(b"starting the SQL server") < written.index(b"clients of PostgreSQL are served at")

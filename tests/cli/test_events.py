"""``penstock events``: the timeline."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.events import events
from penstock.cli.options import Commands
from tests.spark.spark_daemon import Daemon, daemon


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path) as started:
        at = int(time.time() * 1000)
        start = {"tier": "event", "id": "1", "version": 0, "kind": "start", "at": at - 100_000, "until": at - 100_000}
        full = {"tier": "event", "id": "2", "version": 0, "kind": "disk", "at": at, "cause": "[red]no room[/red]"}
        for event in (full, start):
            started.ledger.post(event)
        yield started


def run(running: Daemon, tmp_path: Path, *arguments: str) -> tuple[int, str]:
    app = Commands()
    app.command("events")(events)
    options = ["-o", f"data_dir={tmp_path}", "-o", f"log.http={running.http}", "-o", f"log.grpc={running.grpc}"]
    result = CliRunner().invoke(app, [*options, *arguments])
    return result.exit_code, result.output


def test_the_newest_is_the_last_line(running: Daemon, tmp_path: Path) -> None:
    status, text = run(running, tmp_path)
    said = [line.split(" ", 1)[1] for line in text.splitlines()]
    assert (status, said) == (0, ["penstock started", "the disk is full: [red]no room[/red]"])


def test_one_can_ask_for_the_newest_and_for_those_since_then(running: Daemon, tmp_path: Path) -> None:
    assert run(running, tmp_path, "-n", "1")[1].count("\n") == 1
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 50))
    assert "penstock started" not in run(running, tmp_path, "--since", since)[1]
    assert run(running, tmp_path, "--since", "noon")[0] == 2


def test_json_is_a_line_each(running: Daemon, tmp_path: Path) -> None:
    first, last = map(json.loads, run(running, tmp_path, "--json")[1].splitlines())
    assert (first["kind"], last["kind"], last["until"], last["cause"]) == ("start", "disk", 0, "[red]no room[/red]")

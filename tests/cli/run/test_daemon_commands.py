"""Commands to a running penstock: ``events`` and ``clock``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.options import Commands
from penstock.cli.run import daemon_commands
from penstock.cli.run.daemon_commands import clock, events
from penstock.config.daemon_keys import DaemonKeys
from penstock.files.checked_document import encode
from tests.spark.spark_daemon import Daemon, daemon


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path) as started:
        now_ms = int(time.time() * 1000)
        start = {
            "tier": "event",
            "id": "1",
            "version": 0,
            "kind": "start",
            "at": now_ms - 100_000,
            "until": now_ms - 100_000,
        }
        full = {"tier": "event", "id": "2", "version": 0, "kind": "disk", "at": now_ms, "cause": "[red]no room[/red]"}
        for event in (full, start):
            started.ledger.post(event)
        yield started


def run(running: Daemon, tmp_path: Path, *arguments: str) -> tuple[int, str]:
    app = Commands()
    app.command("events")(events)
    options = ["-o", f"data_dir={tmp_path}", "-o", f"log.http={running.http}", "-o", f"log.grpc={running.grpc}"]
    result = CliRunner().invoke(app, [*options, *arguments])
    return result.exit_code, result.output


def test_events_end_with_the_newest(running: Daemon, tmp_path: Path) -> None:
    status, text = run(running, tmp_path)
    lines = [line.split(" ", 1)[1] for line in text.splitlines()]
    assert (status, lines) == (0, ["penstock started", "the disk is full: [red]no room[/red]"])


def test_events_are_limited_by_number_and_time(running: Daemon, tmp_path: Path) -> None:
    assert run(running, tmp_path, "-n", "1")[1].count("\n") == 1
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 50))
    assert "penstock started" not in run(running, tmp_path, "--since", since)[1]
    assert run(running, tmp_path, "--since", "noon")[0] == 2


def test_events_prints_one_json_line_per_event(running: Daemon, tmp_path: Path) -> None:
    first, last = map(json.loads, run(running, tmp_path, "--json")[1].splitlines())
    assert (first["kind"], last["kind"], last["until"], last["cause"]) == ("start", "disk", 0, "[red]no room[/red]")


def test_clock_reports_a_clock_that_is_ahead_until_it_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "CLOCK").write_bytes(encode({"time": 1_750_000_000.0, "ahead": 0.0}))
    app = Commands()
    app.command("clock")(clock)
    with daemon(tmp_path) as running:
        where = ["-o", f"data_dir={tmp_path}", "-o", f"log.http={running.http}"]
        output = CliRunner().invoke(app, where)
        assert output.exit_code == 1
        assert "ahead of what it should say: retention by age" in output.output.replace("\n", " ")
        accepted = CliRunner().invoke(app, [*where, "--accept", "--json"])
        document = json.loads(accepted.output)
        assert abs(document.pop("time") - time.time()) < 60
        assert document == {"right": True, "ahead": 0.0, "believed_in": 0.0, "accepted": True, "text": ""}
        assert CliRunner().invoke(app, where).output == "the clock is right\n"


def test_followed_events_are_printed_also_if_many_come_at_once(
    running: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, query_daemon = iter(range(3)), daemon_commands.query_daemon

    def query(keys: DaemonKeys, path: str, **parameters: str) -> Any:
        look = next(looks)
        if look == 2:
            raise KeyboardInterrupt
        for number in range(50 * look):
            at = int(time.time() * 1000)
            running.ledger.post({"tier": "event", "id": f"n{number}", "version": 0, "kind": "disk", "at": at})
        return query_daemon(keys, path, **parameters)

    monkeypatch.setattr(daemon_commands, "EVENT_POLL_INTERVAL_S", 0)
    monkeypatch.setattr(daemon_commands, "query_daemon", query)
    status, text = run(running, tmp_path, "--follow", "--limit", "1", "--json")
    assert status == 0
    printed = [json.loads(line)["id"] for line in text.splitlines()]
    assert printed[0] == "2", "of the events from before, the newest one"
    assert sorted(printed[1:]) == sorted(f"n{number}" for number in range(50))

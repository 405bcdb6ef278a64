"""``penstock up``: errors before the start, and delivery of events to the ledger."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from penstock.cli.run.up_processes import LedgerEndpoint
from penstock.config import Settings
from penstock.supervise.timeline import Timeline
from penstock.testing.pipe import Pipe, free_ports
from tests.cli.command_line import run
from tests.spark.spark_daemon import daemon


def test_up_lists_all_ports_in_use_and_starts_nothing(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        http, tcp, web = (f"127.0.0.1:{entry.getsockname()[1]}" for entry in servers)
        ports = ["-o", f"log.http={http}", "-o", f"listener.events-tcp.port={tcp.rpartition(':')[2]}"]
        completed = run("up", "--no-spark", *pipe.options, *ports, "-o", f"console.http={web}", folder=tmp_path)
    owner = f"{os.getpid()} ({Path('/proc/self/comm').read_text().strip()})"
    assert completed.status == 1
    assert completed.errors.splitlines() == [
        f"penstock: log.http: cannot listen on {http}: Address already in use by process {owner}",
        f"penstock: listener 'events-tcp': cannot listen on tcp {tcp}: Address already in use by process {owner}",
    ]


def test_up_refuses_the_address_of_the_console_for_another_server(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    completed = run("up", "--no-spark", *pipe.options, "-o", "log.http=127.0.0.1:8840", folder=tmp_path)
    problem = "console.http: 127.0.0.1:8840 is the address of log.http: choose another port"
    assert (completed.status, completed.errors.strip()) == (1, f"penstock: {problem}")
    completed = run("config", "check", *pipe.options, "-o", "log.http=127.0.0.1:8840", folder=tmp_path)
    assert completed.status == 0
    assert completed.output.splitlines()[1] == f"only for `penstock up` and `penstock console`: {problem}"


def test_restarted_pipeline_is_in_the_timeline(tmp_path: Path) -> None:
    with daemon(tmp_path) as started:
        settings = Settings.model_validate({"data_dir": str(tmp_path), "log": {"http": started.http}})
        timeline = Timeline(LedgerEndpoint(settings))
        timeline.record_death("pipeline", "was killed by SIGKILL")
        timeline.deliver(1)
        timeline.record_return("pipeline")
        timeline.deliver(1)
        timeline.deliver(1)
        (event,) = started.ledger.events()
        assert (event.what, event.cause, event.version, event.until >= event.at) == (
            "pipeline",
            "was killed by SIGKILL",
            1,
            True,
        )
        assert timeline.is_delivered


def test_unreachable_daemon_is_retried_later_without_waiting(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    endpoint = LedgerEndpoint(Settings.model_validate({"data_dir": str(tmp_path), "log": {"http": address}}))
    assert [endpoint.send_events([{"id": "x"}]), endpoint.send_events([{"id": "x"}]), endpoint.poll_answers()] == [
        0,
        0,
        0,
    ]


def test_demo_ignores_the_configuration_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[[listener]]\nname = "web"\nprotocol = "http"\nport = 4318\n')
    completed = run("up", "--demo", "--no-spark", folder=tmp_path, seconds=180)
    assert completed.status == 0, completed.text
    assert "unaccounted: 0" in completed.output
    assert not (tmp_path / "data").exists()

"""``penstock up`` says why it cannot start before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

from penstock.testing.pipe import Pipe
from tests.cli.command_line import run


def test_a_port_that_others_have_is_all_that_is_said(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        http, tcp = (f"127.0.0.1:{one.getsockname()[1]}" for one in (taken, other))
        ports = ["-o", f"log.http={http}", "-o", f"listener.events-tcp.port={tcp.rpartition(':')[2]}"]
        ended = run("up", "--no-spark", *pipe.options, *ports, "-o", f"console.http={http}", folder=tmp_path)
    assert ended.status == 1
    assert ended.errors.splitlines() == [
        f"penstock: log.http: cannot listen on {http}: Address already in use",
        f"penstock: listener 'events-tcp': cannot listen on tcp {tcp}: Address already in use",
    ]

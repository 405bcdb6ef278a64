"""What a log does: appends and reads, by clients in processes of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bench.peers.peer import told

CALLERS = ((1, 1), (8, 1), (64, 1), (1, 1000))
"""Callers, and entries a request. NATS has no requests of many: there, that many are on their way at once."""
GO_CLIENT = Path(__file__).parents[1] / "append_load_go"


def writes(peer: Any, seconds: float) -> dict[str, float]:
    """Return entries a second, milliseconds of the server's CPU a request, and how many cores the client used.

    The client is in Go where Go is installed: one in Python is the limit of a fast server.
    """
    client = go_client() if peer.appends_with == ("append_load",) else None
    figures = {
        f"append_{callers}_callers_{entries}_entries_{name}": value
        for callers, entries in CALLERS
        for name, value in _append(peer, client, callers, entries, seconds)
    }
    return figures | {"append_client_is_in_go": client is not None}


def _append(peer: Any, client: str | None, callers: int, entries: int, seconds: float) -> Iterator[tuple[str, float]]:
    before = peer.cpu()
    load = (peer.address, f"t{callers}-{entries}", callers, entries, seconds)
    found = _told_by(client, *load) if client else told(*peer.appends_with, *load)
    spent = peer.cpu() - before
    yield "per_s", found["requests"] * entries / found["seconds"]
    yield "cpu_ms_a_request", 1000 * spent / max(found["requests"], 1)
    yield "refused", found["failed"]
    yield "client_cores", found["cores"]


@cache
def go_client() -> str | None:
    """Build the client in Go and return its path; None where Go is not installed. Raises CalledProcessError."""
    go = shutil.which("go")
    if go is None:
        return None
    program = Path(tempfile.mkdtemp(prefix="penstock-bench-go-")) / "append_load"
    subprocess.run([go, "build", "-o", str(program), "."], cwd=GO_CLIENT, check=True)
    return str(program)


def _told_by(program: str, *arguments: object) -> Any:
    return json.loads(subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE).stdout)


def reads(peer: Any) -> dict[str, float]:
    """Return entries a second, by pages of 1,000 and by a stream, and how many cores the client used."""
    return {f"read_{name}": value for name, value in told(*peer.reads_with, peer.address).items()}

"""A limit of 256 open files: appends go on under many connections and topics, and a stop is quiet."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from penstock.testing.pipe import Pipe

TOPICS = 90
"""More than fit into 256 descriptors, with four each."""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path)
    pipe.launcher = ("prlimit", "--nofile=256:256")
    pipe.start()
    yield pipe
    pipe.stop()


def append_to_all(client: httpx.Client) -> Counter[int]:
    """Append to each topic; return how often each status came."""
    document = {"logs": [{"rawBytes": "eA=="}]}
    return Counter(client.post(f"/topic/t-{number}/logs", json=document).status_code for number in range(TOPICS))


def test_few_descriptors_refuse_no_append_and_a_stop_is_quiet(pipe: Pipe) -> None:
    host, _, port = pipe.http.partition(":")
    clients = [httpx.Client(base_url=f"http://{pipe.http}", timeout=30) for _ in range(2)]
    with clients[0], clients[1], ExitStack() as opened:
        assert append_to_all(clients[0]) == {200: TOPICS}
        for _ in range(200):
            opened.enter_context(socket.create_connection((host, int(port)), 5))
        # Another client: the idle connection of the first may be closed for these in the moment of its next request.
        assert append_to_all(clients[1]) == {200: TOPICS}
        before = pipe.output.stat().st_size
        pipe.stop()
    stopping = pipe.output.read_bytes()[before:]
    assert stopping.count(b"\n") < 10, stopping[:2000]
    assert b"log.max_connections is 1000, but RLIMIT_NOFILE allows only 64" in pipe.output.read_bytes()

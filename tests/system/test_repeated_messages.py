"""Unacknowledged messages that senders repeat land once if their protocol has an id."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgpack
import pytest
from elasticsearch import Elasticsearch
from elasticsearch.helpers import bulk

from penstock.landing.table_paths import Layout
from penstock.testing.pipe import Pipe, wait_until
from penstock.upkeep.trace.tracer import Tracer
from tests.system.configured_pipe import SMALL, configured_pipe, listener
from tests.system.topic_files import entries

LISTENERS = SMALL + listener("forward", "tcp", 'codec = "forward"') + listener("web", "http", 'max_line = "32KiB"')
PLAIN = {"body": {"stringValue": "an order"}}
KNOWN = PLAIN | {"attributes": [{"key": "log.record.uid", "value": {"stringValue": "01JD"}}]}

HEC_WITH_BAD_EVENT = b"".join(
    b'{"time":1764360000.5,"event":%s}' % event for event in (b'"a"', b'"a"', b"null", b'"b"')
)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    with configured_pipe(tmp_path, LISTENERS) as running:
        yield running


def chunk(number: int) -> bytes:
    """Return three records, the last two of which are equal."""
    events = [[number, {"n": n}] for n in (1, 2, 2)]
    packed: bytes = msgpack.packb(["shop", events, {"size": 3, "chunk": f"chunk-{number}"}])
    return packed


def is_acknowledged(pipe: Pipe, request: bytes) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(pipe.address("forward"), timeout=10) as sock:
        sock.sendall(request)
        return b"chunk-" in sock.recv(1000)
    return False


def send_and_be_cut_off(pipe: Pipe, request: bytes) -> None:
    """Kill the receiver after the log has the request and before the sender gets an answer."""
    before = len(entries(pipe, "forward"))
    with socket.create_connection(pipe.address("forward"), timeout=10) as sock:
        sock.sendall(request)
        wait_until(lambda: len(entries(pipe, "forward")) == before + 3)
        pipe.kill("receiver forward")


def land(pipe: Pipe) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", "--once", *pipe.options]
    subprocess.run(command, check=True, timeout=120, capture_output=True)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_repeated_message_lands_once(pipe: Pipe) -> None:
    for number in range(3):
        send_and_be_cut_off(pipe, chunk(number))
        wait_until(lambda number=number: is_acknowledged(pipe, chunk(number)))  # type: ignore[misc]
    host, port = pipe.address("web")
    with Elasticsearch(f"http://{host}:{port}") as client:
        for documents in ([0, 1, 2], [1, 2, 3], [1]):
            created = [{"_op_type": "create", "_index": "shop", "_id": str(n), "n": n} for n in documents]
            assert bulk(client, created) == (len(documents), [])
        assert bulk(client, [{"_index": "shop", "_id": "1", "n": 1}, *[{"_index": "shop", "n": 1}] * 2])
    for record in (KNOWN, KNOWN, PLAIN, PLAIN):
        request = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
        assert httpx.post(f"http://{host}:{port}/v1/logs", json=request, timeout=30).is_success
    for _ in range(3):  # Docker's driver repeats a whole request that has a bad event
        answer = httpx.post(f"http://{host}:{port}/services/collector/event", content=HEC_WITH_BAD_EVENT, timeout=30)
        assert (answer.status_code, answer.json()["invalid-event-number"]) == (400, 2)
    land(pipe)
    wait_until(lambda: pipe.fates("web").total() == 20)
    assert pipe.fates("forward") == {"landed.message": 9, "duplicate": len(entries(pipe, "forward")) - 9}
    assert pipe.fates("web") == {"landed.message": 12, "duplicate": 8}
    assert pipe.settled()["unaccounted"] == 0
    tracer = Tracer(pipe.data_dir / "topics", Layout.for_tables(pipe.data_dir / "tables"))
    trace = tracer.trace("forward", 3)
    assert (trace.fate, trace.uuid) == ("duplicate", entries(pipe, "forward")[0]["annotations"]["uuid"])

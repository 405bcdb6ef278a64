"""Reading over Flight while the server goes away: nothing is lost or repeated, and an end is an error that says so."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from hypothesis import given

from penstock.client import ClientError, NotAllowed, Unavailable
from penstock.config import TokenConfig
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.topics import from_flight
from penstock.landing.topics.from_flight import FlightStore
from penstock.landing.topics.topic_store import Range
from penstock.server.auth.rights import TokenAuthenticator
from tests.fuzzed import json_texts
from tests.server.certificates import make
from tests.spark.spark_flight import Served, served
from tests.spark.spark_helpers import append

ROWS = 40_000
OFFSETS = pa.schema([pa.field("offset", pa.int64())])
TOKEN = "sixteen letters at least"


@pytest.fixture
def server(topics: Path) -> Iterator[Served]:
    append(topics, "t", *[[b"x" * 100] * 1_000] * (ROWS // 1_000))
    with served(topics) as running:
        yield running


def store(address: str, retry_for: float = 60.0, token: str = "") -> FlightStore:
    return FlightStore(DaemonConnection(address, token, retry_for=retry_for))


def close_for_a_while(server: Served, seconds: float) -> None:
    """Close the server, and open it again after a while."""
    server.close()
    threading.Timer(seconds, server.open).start()


def test_stream_resumes_when_server_returns(server: Served) -> None:
    batches = store(server.address).read(Range("t", 0, ROWS), OFFSETS)
    offsets = next(batches).column("offset").to_pylist()
    close_for_a_while(server, 1.0)
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    assert offsets == list(range(ROWS))


def test_calls_wait_for_server(server: Served) -> None:
    flight_store = store(server.address)
    assert flight_store.views(["t"])["t"].end == ROWS
    close_for_a_while(server, 0.5)
    assert flight_store.views(["t"])["t"].end == ROWS
    assert flight_store.waiting_since("t", ROWS) is None


def test_unreachable_server_raises_within_retry_time(topics: Path) -> None:
    start = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"Flight server 127.0.0.1:1 does not answer .*log.flight.*; retried for 0.5 s"
    ):
        store("127.0.0.1:1", 0.5).views(["*"])
    with pytest.raises(Unavailable, match=r"tried for 0\.1 s"):
        list(store("127.0.0.1:1", 0.1).read(Range("t", 0, 5), OFFSETS))
    assert time.monotonic() - start < 30


def test_address_of_grpc_is_refused_with_the_key_to_use() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(ClientError, match=rf"127.0.0.1:{port} is not a Flight server: .*log.flight"):
            store(f"127.0.0.1:{port}").views(["*"])
    finally:
        server.stop(None)


SERVER = """
import sys, threading
from pathlib import Path
from tests.spark.spark_flight import Served
print(Served(Path(sys.argv[1])).address, flush=True)
threading.Event().wait()
"""


@pytest.mark.survives("landing from the log", "SIGSTOP")
def test_stopped_server_is_waited_for_within_timeout(topics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(topics, "t", *[[b"x" * 100] * 1_000] * (ROWS // 1_000))
    command = [sys.executable, "-c", SERVER, str(topics)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout
        address = process.stdout.readline().strip()
        monkeypatch.setattr(from_flight, "CALL_TIMEOUT_S", 0.3)
        monkeypatch.setattr(from_flight, "STREAM_TIMEOUT_S", 0.5)
        batches = store(address).read(Range("t", 0, ROWS), OFFSETS)
        offsets = next(batches).column("offset").to_pylist()
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(Unavailable, match="does not answer"):
            store(address, 0.2).views(["t"])
        threading.Timer(1.0, os.kill, [process.pid, signal.SIGCONT]).start()
        for batch in batches:
            offsets += batch.column("offset").to_pylist()
        assert offsets == list(range(ROWS))
    finally:
        process.kill()
        process.wait()


def test_filter_without_matches_reads_topic_in_parts(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_flight, "FILTERED_ROWS_PER_STREAM", 7_000)
    assert list(store(server.address).read(Range("t", 0, ROWS), OFFSETS, filter_text="k:none")) == []
    every = store(server.address).read(Range("t", 5, ROWS), OFFSETS, filter_text="NOT k:none")
    assert [o for batch in every for o in batch.column("offset").to_pylist()] == list(range(5, ROWS))


def test_wrong_token_is_refused_without_retry(topics: Path) -> None:
    append(topics, "t", [b"x"])
    with served(topics, TokenAuthenticator({"reader": TokenConfig(token=TOKEN, read=("t",))})) as server:
        assert store(server.address, token=TOKEN).views(["*"])["t"].end == 1
        assert len(list(store(server.address, token=TOKEN).read(Range("t", 0, 1), OFFSETS))) == 1
        with pytest.raises(NotAllowed, match="token") as error:
            store(server.address, token="another's secret").views(["*"])
        assert "secret" not in str(error.value)
        with pytest.raises(NotAllowed):
            list(store(server.address).read(Range("t", 0, 1), OFFSETS))


def test_tls_authenticates_both_sides(topics: Path, tmp_path: Path) -> None:
    append(topics, "t", [b"x"])
    server, client = make(tmp_path, "server"), make(tmp_path, "client")
    pair = (server.key.read_bytes(), server.cert.read_bytes())
    credentials = grpc.ssl_server_credentials([pair], client.cert.read_bytes(), True)
    tls_options = {
        "tlsca": str(server.cert),
        "tlscert": str(client.cert),
        "tlskey": str(client.key),
        "tlsname": "server",
    }
    with served(topics, credentials=credentials) as running:
        options = {"uri": f"grpc+tls://{running.address}", **tls_options}
        assert FlightStore(DaemonConnection.from_options(options)).views(["t"])["t"].end == 1
        stranger = {"uri": options["uri"], "tlsca": options["tlsca"], "retryfor": "200ms"}
        with pytest.raises(Unavailable, match="does not answer"):
            FlightStore(DaemonConnection.from_options(stranger)).views(["t"])


@given(json_texts("topic", "start", "micros"))
def test_any_answer_is_parsed_or_raises_client_error(data: bytes) -> None:
    with contextlib.suppress(ClientError):
        assert isinstance(from_flight.parse_answer(data), dict)

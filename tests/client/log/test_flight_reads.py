"""Arrow reads over Flight and over gRPC return the same rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock import records
from penstock.client import AtCursor, Log, NoSuchTopic, Refused
from penstock.client.log.connection import Endpoint
from penstock.client.log.flight_reads import flight_batches
from penstock.records import SCHEMA
from tests.client.client_proxy import Proxy
from tests.server.running import Running

ROWS = 30_000


@pytest.fixture(params=["flight", "gRPC", "no Flight there"])
def log(request: pytest.FixtureRequest, running: Running) -> Iterator[Log]:
    flight = {"flight": running.bound.flight, "gRPC": None, "no Flight there": "127.0.0.1:1"}[request.param]
    with Log(running.bound.grpc, flight=flight) as client:
        yield client


def fill(log: Log) -> None:
    for begin in range(0, ROWS, 10_000):
        payloads = [b"%d" % number for number in range(begin, begin + 10_000)]
        notes = pa.array([[("last", str(number % 10))] for number in range(10_000)], records.ANNOTATIONS)
        assert log.append_batch("t", records.body(payloads, annotations=notes))[0] == begin


def test_all_transports_return_the_same_rows(log: Log) -> None:
    fill(log)
    table = log.table("t")
    assert table.schema == SCHEMA
    assert table.column("offset").to_pylist() == list(range(ROWS))
    assert table.column("payload").to_pylist() == [b"%d" % number for number in range(ROWS)]
    moment = table.column("timestamp")[20_000].as_py()
    assert log.table("t", 9_999, 10_002, columns=["payload"]).to_pydict() == {"payload": [b"9999", b"10000", b"10001"]}
    assert log.table("t", moment, columns=["offset"]).column("offset").to_pylist() == list(range(20_000, ROWS))
    assert log.table("t", 5, filter="k:last v:7", columns=["offset"]).num_rows == ROWS // 10
    assert log.table("t", "latest").num_rows == log.table("t", 5, 5).num_rows == log.table("t", ROWS + 5).num_rows == 0
    log.commit_cursor("t", "reader", ROWS - 3)
    assert log.table("t", AtCursor("reader")).column("offset").to_pylist() == [ROWS - 3, ROWS - 2, ROWS - 1]


def test_all_transports_raise_the_same_errors(log: Log) -> None:
    with pytest.raises(NoSuchTopic):
        log.table("nope")
    log.append("t", [b"x"])
    with pytest.raises(Refused, match="filter"):
        log.table("t", filter="k:[")
    with pytest.raises(KeyError):
        log.table("t", columns=["nope"])


def test_proxy_of_the_environment_is_not_used(running: Running, proxied: None) -> None:
    with Log(running.bound.grpc, retry_for=0) as log:
        log.append("t", [b"x"])
    link = Endpoint(running.bound.grpc, None, None, running.bound.flight)
    (batch,) = flight_batches(link, "t", 0, 1, None, ["payload"])
    assert batch["payload"].to_pylist() == [b"x"]


def test_broken_stream_is_finished_over_grpc(running: Running) -> None:
    proxy = Proxy(running.bound.flight)
    with Log(running.bound.grpc, flight=proxy.address) as log:
        fill(log)
        batches = log.batches("t", columns=["offset"])
        offsets = next(batches).column("offset").to_pylist()
        assert proxy.connections == 1
        proxy.refuse()
        for batch in batches:
            offsets += batch.column("offset").to_pylist()
    proxy.close()
    assert offsets == list(range(ROWS))

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from penstock.config import SecurityConfig, TokenConfig
from penstock.counts import Origin
from penstock.records import BODY, SCHEMA, body
from penstock.server.auth.rights import Principal
from penstock.server.flight.batch_messages import BatchEncoder, bytes_field
from penstock.server.flight.puts import _Put
from penstock.server.flight.server import SERVICE
from penstock.server.grpc.calls import LoopCall
from penstock.testing import wait_until
from tests.server.http2_attacker import Attacker
from tests.server.running import Running

ANNOTATED = pa.MapArray.from_arrays([0, 1, 2, 3], ["userid"] * 3, ["5", "55", "5"])


@pytest.fixture
def client(running: Running) -> Iterator[Any]:
    with flight.connect(f"grpc://{running.bound.flight}") as connected:
        yield connected


def put_batches(client: Any, descriptor: Any, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    """Put batches and wait for all answers."""
    descriptor = flight.FlightDescriptor.for_path(descriptor) if isinstance(descriptor, str) else descriptor
    writer, answers = client.do_put(descriptor, batches[0].schema)
    for batch in batches:
        writer.write_batch(batch)
    writer.done_writing()
    documents = []
    while (answer := answers.read()) is not None:
        documents.append(json.loads(answer.to_pybytes()))
    writer.close()
    return documents


def get(client: Any, **ticket: Any) -> pa.Table:
    return client.do_get(flight.Ticket(json.dumps(ticket).encode())).read_all()


def test_stored_batches_are_read_back(client: Any) -> None:
    sent = body([b"a", None, b"c"], keys=pa.array([b"k", None, b""]), annotations=ANNOTATED)
    assert put_batches(client, "t", sent, sent) == [
        {"first": 0, "rows": 3, "durability": "synced"},
        {"first": 3, "rows": 3, "durability": "synced"},
    ]
    table = get(client, topic="t")
    assert table.schema.equals(SCHEMA)
    assert table.column("offset").to_pylist() == list(range(6))
    assert table.select(sent.schema.names).slice(0, 3).to_batches()[0].equals(sent)
    stamps = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert stamps == sorted(set(stamps))


def test_ticket_selects_rows_and_columns(client: Any) -> None:
    put_batches(client, "t", body([b"a", b"b", b"c"], annotations=ANNOTATED))
    table = get(client, topic="t", columns=["payload", "offset"], filter="k:userid v:5")
    assert table.to_pydict() == {"payload": [b"a", b"c"], "offset": [0, 2]}
    assert get(client, topic="t", **{"from": 1, "to": 2}).column("payload").to_pylist() == [b"b"]
    assert get(client, topic="t", **{"from": "latest"}).num_rows == 0
    second = get(client, topic="t").column("timestamp")[1].as_py()
    later = second.isoformat().replace("+00:00", "Z")
    assert get(client, topic="t", **{"from": later}).column("payload").to_pylist() == [b"b", b"c"]


def test_small_batches_are_joined(client: Any) -> None:
    put_batches(client, "t", *[body([b"%d" % n]) for n in range(100)])
    reader = client.do_get(flight.Ticket(b'{"topic":"t"}'))
    batches = [chunk.data for chunk in reader]
    assert [batch.num_rows for batch in batches] == [100]
    assert batches[0].column("payload").to_pylist() == [b"%d" % n for n in range(100)]


def test_offsets_and_timestamps_come_from_the_log(client: Any) -> None:
    put_batches(client, "t", body([b"a"]))
    copied = get(client, topic="t").combine_chunks().to_batches()[0]
    put_batches(client, "t", copied)
    assert get(client, topic="t").column("offset").to_pylist() == [0, 1]


def test_text_column_is_accepted_as_payload(client: Any) -> None:
    put_batches(client, "t", pa.record_batch({"payload": pa.array(["a", "b"]), "key": pa.array(["k", None])}))
    assert get(client, topic="t", columns=["payload", "key"]).to_pydict() == {
        "payload": [b"a", b"b"],
        "key": [b"k", None],
    }


def test_topics_are_listed_as_flights(client: Any, running: Running) -> None:
    for name in ("b", "a"):
        put_batches(client, name, body([b"x"] * 2))
    running.log.topic("_internal", create=True, internal=True)
    infos = list(client.list_flights())
    assert [info.descriptor.path for info in infos] == [[b"a"], [b"b"]]
    assert [info.total_records for info in infos] == [2, 2]
    table = client.do_get(infos[0].endpoints[0].ticket).read_all()
    assert table.column("payload").to_pylist() == [b"x", b"x"]


def test_flight_info_describes_topic_and_ticket(client: Any) -> None:
    put_batches(client, "t", body([b"x"] * 5))
    by_path = client.get_flight_info(flight.FlightDescriptor.for_path("t"))
    assert (by_path.total_records, by_path.schema.equals(SCHEMA)) == (5, True)
    command = json.dumps({"topic": "t", "from": 2, "columns": ["payload"], "filter": "k:a"}).encode()
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
    assert (info.total_records, info.schema.names) == (-1, ["payload"])
    assert json.loads(info.endpoints[0].ticket.ticket)["from"] == 2


def test_refused_message_behind_an_unread_answer_does_not_keep_its_connection_open(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, append = threading.Event(), _Put.append

    def observed(put: _Put, message: bytes, caller: Principal) -> Any:
        try:
            return append(put, message, caller)
        except Exception:
            refused.set()
            raise

    async def wait_for_the_client(call: LoopCall, answer: bytes) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(_Put, "append", observed)
    # gRPC takes the first 64 KiB of answers that nobody reads, so a client would need thousands of batches.
    monkeypatch.setattr(LoopCall, "write", wait_for_the_client)
    attacker = Attacker(running.bound.flight, f"/{SERVICE}/DoPut")
    encoder, descriptor = BatchEncoder(BODY), flight.FlightDescriptor.for_path("t").serialize()
    schema = bytes_field(1, descriptor) + encoder.schema_message()
    attacker.send_without_reading([schema, *encoder.batch_messages(body([b"x"])), b"\xff"])
    limit = running.limits.rpc_connections["flight"]
    assert refused.wait(20)
    wait_until(lambda: running.log.topic("t").end == 1)
    wait_until(lambda: not any(peer for peers in limit.answering for peer in peers()), 10)
    attacker.close()


@pytest.mark.parametrize(
    ("ticket", "error", "text"),
    [
        ({"topic": "nope"}, flight.FlightServerError, "NOT_FOUND: Topic does not exist: nope"),
        ({"topic": "NO"}, flight.FlightServerError, "Topic must conform"),
        ({"topic": "t", "filter": "k:("}, flight.FlightServerError, "bad filter at character 3"),
        ({"topic": "t", "columns": ["x"]}, flight.FlightServerError, "columns are of"),
        ({"topic": "t", "from": -1}, flight.FlightServerError, "from is an offset"),
        ({"topic": "t", "to": "x"}, flight.FlightServerError, "to is an offset"),
        ({"topic": "t", "form": 1}, flight.FlightServerError, "no 'form'"),
        ({}, flight.FlightServerError, "a ticket is a JSON object"),
    ],
)
def test_invalid_ticket_is_refused(client: Any, ticket: dict[str, Any], error: type[Exception], text: str) -> None:
    put_batches(client, "t", body([b"x"]))
    with pytest.raises(error, match=text):
        get(client, **ticket)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (pa.record_batch({"other": pa.array([b"x"])}), "columns must be payload"),
        (pa.record_batch({"payload": pa.array([b"x"]), "extra": pa.array([1])}), "columns must be payload"),
        (pa.record_batch({"payload": pa.array([1.5])}), "types of the log"),
    ],
)
def test_unknown_columns_are_refused(client: Any, batch: pa.RecordBatch, text: str) -> None:
    with pytest.raises(flight.FlightServerError, match=text):
        put_batches(client, "t", batch)


def test_large_message_and_internal_topic_are_refused(client: Any) -> None:
    with pytest.raises(flight.FlightServerError, match="takes at most"):
        put_batches(client, "t", body([b"x" * (17 << 20)]))
    with pytest.raises(flight.FlightUnauthorizedError, match="internal"):
        put_batches(client, "_ledger", body([b"x"]))


def test_concurrent_puts_and_gets_leave_no_hole(running: Running) -> None:
    answers: list[dict[str, Any]] = []

    def run() -> None:
        with flight.connect(f"grpc://{running.bound.flight}") as client:
            answers.extend(put_batches(client, "t", *[body([b"x"] * 10)] * 20))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer["first"] for answer in answers) == list(range(0, 1600, 10))
    with flight.connect(f"grpc://{running.bound.flight}") as client:
        assert get(client, topic="t").column("offset").to_pylist() == list(range(1600))


def do_get_as_go_and_rust_do(channel: grpc.Channel, **ticket: Any) -> Any:
    request = flight.Ticket(json.dumps(ticket).encode()).serialize()
    return channel.unary_stream("/arrow.flight.protocol.FlightService/DoGet")(request, timeout=60)


def test_clients_with_the_default_limit_read_large_batches(client: Any, running: Running) -> None:
    put_batches(client, "t", *[body([b"x" * 1000] * 10_000)] * 2)
    with grpc.insecure_channel(running.bound.flight) as channel:
        sizes = [len(message) for message in do_get_as_go_and_rust_do(channel, topic="t")]
    assert sum(sizes) > 20_000_000
    assert max(sizes) < 4 << 20
    assert get(client, topic="t").column("offset").to_pylist() == list(range(20_000))


def test_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    tokens = {
        "reader": TokenConfig(token="the first secret", read=("*",)),
        "other": TokenConfig(token="the second secret", read=("*",)),
    }
    running = Running(tmp_path / "topics", SecurityConfig(tokens=tokens))
    try:
        topic = running.log.topic("t", create=True)
        for _ in range(10):
            topic.append(body([b"x" * 1_000_000] * 3), Origin("tcp", 60, 5, 9, "raw")).result(20)
        options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer the first secret")])
        with flight.connect(f"grpc://{running.bound.flight}") as connected:
            reader = connected.do_get(flight.Ticket(b'{"topic":"t"}'), options)
            reader.read_chunk()
            del tokens["reader"]
            running.api.guard.replace(tokens)
            with pytest.raises(flight.FlightUnauthenticatedError, match="was revoked"):
                reader.read_all()
    finally:
        running.stop()


def test_stalled_readers_do_not_delay_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.flight.server.MAX_OPEN_READS", 4)
    running = Running(tmp_path / "topics")
    try:
        with flight.connect(f"grpc://{running.bound.flight}") as connected:
            put_batches(connected, "t", *[body([b"x" * 100_000] * 100)] * 4)
            with grpc.insecure_channel(running.bound.flight) as channel:
                stalled = [do_get_as_go_and_rust_do(channel, topic="t") for _ in range(12)]
                for stream in stalled:
                    with contextlib.suppress(grpc.RpcError):  # the first ones may be ended already
                        next(stream)
                assert get(connected, topic="t").num_rows == 400
                codes = [code_of(stream) for stream in stalled]
    finally:
        running.stop()
    assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) >= 8
    assert set(codes) <= {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OK}


def code_of(stream: Any) -> grpc.StatusCode:
    """Read to the end; return the status."""
    with contextlib.suppress(grpc.RpcError):
        for _ in stream:
            pass
    return stream.code()


@pytest.mark.timeout(120)
def test_server_stops_despite_a_stalled_reader(running: Running, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.servers.GRACE_S", 600)
    put_batches(client, "t", *[body([b"x" * 100_000] * 100)] * 4)
    reader = client.do_get(flight.Ticket(b'{"topic":"t"}'))
    reader.read_chunk()
    running.stop()
    assert running.has_stopped
    with contextlib.suppress(pa.ArrowException, OSError):  # what was on its way may still come whole
        reader.read_all()

"""Streams of OTAP at the port of OTLP over gRPC: each batch is answered once the log has its messages."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock.handover import stored_waits
from penstock.ingest.requests.otap import MAX_UNANSWERED, STREAMS_PER_UNFINISHED_BODY
from penstock.ingest.requests.otlp_grpc import OtlpGrpcReceiver
from penstock.testing.pipe import wait_until
from penstock.wire.otap.streams import INVALID_ARGUMENT, OK, UNAVAILABLE, BatchArrowRecords, BatchStatus
from tests.ingest.requests.test_otlp_grpc import code_of, export
from tests.ingest.requests_life import Requests, requests_to
from tests.server.http2_attacker import Attacker
from tests.wire.otap.otap_batches import ArrowSender, tables_of
from tests.wire.otlp.otlp_requests import request

ARROW_LOGS = "/opentelemetry.proto.experimental.arrow.v1.ArrowLogsService/ArrowLogs"


@pytest.fixture
def otel(tmp_path: Path) -> Iterator[tuple[Requests, int]]:
    with requests_to(tmp_path, "otlp_grpc", max_line="64KiB", max_body="1MiB", annotate_source=True) as running:
        yield running


class Stream:
    """A client's stream: ``send`` returns at once, ``status`` waits for the next answer."""

    def __init__(self, channel: grpc.Channel, **options: Any) -> None:
        self._batches: queue.Queue[bytes | None] = queue.Queue()
        self._answers = channel.stream_stream(ARROW_LOGS)(
            iter(self._batches.get, None), timeout=60, wait_for_ready=True, **options
        )

    def send(self, batch: bytes | None) -> None:
        self._batches.put(batch)

    def status(self) -> tuple[int, int, str]:
        answer = BatchStatus.FromString(next(self._answers))
        return answer.batch_id, answer.status_code, answer.status_message

    def end(self) -> grpc.StatusCode:
        """Complete the stream and return its status."""
        self._batches.put(None)
        with contextlib.suppress(grpc.RpcError):
            for _ in self._answers:
                pass
        code: grpc.StatusCode = self._answers.code()
        return code


@contextlib.contextmanager
def connect(port: int, **options: Any) -> Iterator[Stream]:
    settings = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", settings, options.pop("compression", None)) as channel:
        stream = Stream(channel, **options)
        yield stream
        stream.send(None)


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_batches_are_messages_however_they_are_compressed(otel: tuple[Requests, int], compression: Any) -> None:
    running, port = otel
    sender = ArrowSender()
    with connect(port, compression=compression) as stream:
        for number, count in enumerate((2, 500, 3)):
            stream.send(sender.batch(tables_of(request(count))))
            assert stream.status() == (number, OK, "")
            assert len(running.rows) == (2, 502, 505)[number]
        assert stream.end() is grpc.StatusCode.OK
    assert running.rows[0]["annotations"]["resource.service.part0"] == "value 0"
    assert running.rows[0]["annotations"]["source_address"] == "127.0.0.1"
    assert running.counts["accepted"] == 505


def test_batches_are_answered_in_order_while_more_are_sent(otel: tuple[Requests, int]) -> None:
    running, port = otel
    sender, batches = ArrowSender(), 3 * MAX_UNANSWERED
    with connect(port) as stream:
        for _ in range(batches):
            stream.send(sender.batch(tables_of(request(10))))
        assert [stream.status() for _ in range(batches)] == [(number, OK, "") for number in range(batches)]
    assert len(running.rows) == 10 * batches


def test_otlp_and_otap_share_a_port(otel: tuple[Requests, int]) -> None:
    running, port = otel
    with connect(port) as stream:
        stream.send(ArrowSender().batch(tables_of(request(1))))
        stream.status()
        export(port, request(1).SerializeToString())
    first, second = running.rows
    assert first["payload"] == second["payload"]
    assert sorted(first["annotations"]) == sorted(second["annotations"])


def test_oversize_record_is_refused_alone(otel: tuple[Requests, int]) -> None:
    running, port = otel
    sent = request(3)
    sent.resource_logs[0].scope_logs[0].log_records[1].body.string_value = "x" * 70_000
    with connect(port) as stream:
        stream.send(ArrowSender().batch(tables_of(sent)))
        batch_id, code, text = stream.status()
    assert (batch_id, code, len(running.rows)) == (0, OK, 2)
    assert text.startswith("1 oversize")
    assert running.counts["refused.oversize"] == 1


def test_batch_above_max_messages_is_refused_and_the_stream_goes_on(tmp_path: Path) -> None:
    with requests_to(tmp_path, "otlp_grpc", max_messages=20) as (running, port), connect(port) as stream:
        sender = ArrowSender()
        for count in (21, 20):
            stream.send(sender.batch(tables_of(request(count))))
        assert stream.status()[:2] == (0, INVALID_ARGUMENT)
        assert stream.status() == (1, OK, "")
        assert len(running.rows) == 20
        assert running.counts["request_refused.messages"] == 1


def test_damaged_batch_is_refused_and_its_stream_ends(otel: tuple[Requests, int]) -> None:
    running, port = otel
    sender = ArrowSender()
    sender.batch(tables_of(request(1)))
    with connect(port) as stream:
        stream.send(sender.batch(tables_of(request(1))))  # without its schema
        batch_id, code, text = stream.status()
        assert (batch_id, code) == (1, INVALID_ARGUMENT)
        assert "a schema for a new stream" in text
        assert stream.end() is grpc.StatusCode.INVALID_ARGUMENT
    wait_until(lambda: running.counts["request_refused.syntax"] == 1)


def test_bytes_that_are_no_batch_end_the_stream(otel: tuple[Requests, int]) -> None:
    _, port = otel
    with connect(port) as stream:
        stream.send(b"\x0b nope")
        assert stream.end() is grpc.StatusCode.INVALID_ARGUMENT


def test_unconfirmed_batch_may_be_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_waits.StoredWaits.__init__, "__defaults__", (0.2, time.monotonic))
    with requests_to(tmp_path, "otlp_grpc") as (running, port), connect(port) as stream:
        running.log_goes_on, sender = False, ArrowSender()
        stream.send(sender.batch(tables_of(request(1))))
        assert stream.status()[:2] == (0, UNAVAILABLE)
        running.log_goes_on = True
        stream.send(sender.batch(tables_of(request(1))))
        assert stream.status() == (1, OK, "")


def test_token_and_other_signals(tmp_path: Path) -> None:
    with requests_to(tmp_path, "otlp_grpc", tokens=["secret"]) as (_, port):
        for metadata in ((), (("authorization", "Bearer wrong"),)):
            with connect(port, metadata=metadata) as stream, pytest.raises(grpc.RpcError) as refused:
                stream.status()
            assert code_of(refused.value) in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
        with connect(port, metadata=(("authorization", "Bearer secret"),)) as stream:
            stream.send(ArrowSender().batch(tables_of(request(1))))
            assert stream.status() == (0, OK, "")
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError) as refused:
            next(channel.stream_stream(ARROW_LOGS.replace("Logs", "Traces"))(iter(()), timeout=30))
        assert code_of(refused.value) is grpc.StatusCode.UNIMPLEMENTED


def test_stream_that_was_used_least_recently_makes_room(tmp_path: Path) -> None:
    settings = {"max_unfinished": "1MiB", "max_body": "1MiB"}
    with requests_to(tmp_path, "otlp_grpc", **settings) as (_, port), contextlib.ExitStack() as stack:
        streams = [stack.enter_context(connect(port)) for _ in range(STREAMS_PER_UNFINISHED_BODY)]
        for stream in streams:
            stream.send(ArrowSender().batch(tables_of(request(1))))
            stream.status()
        newest = stack.enter_context(connect(port))
        newest.send(ArrowSender().batch(tables_of(request(1))))
        assert newest.status() == (0, OK, "")
        with pytest.raises(grpc.RpcError) as ended:
            streams[0].status()
        assert code_of(ended.value) is grpc.StatusCode.UNAVAILABLE
        assert streams[1].end() is grpc.StatusCode.OK


def test_unread_answers_stop_the_reading_of_batches(otel: tuple[Requests, int]) -> None:
    running, port = otel
    receiver = running.receiver
    assert isinstance(receiver, OtlpGrpcReceiver)
    export(port, request(1).SerializeToString())  # it listens
    attacker = Attacker(f"127.0.0.1:{port}", ARROW_LOGS)
    try:
        attacker.send_without_reading(
            [BatchArrowRecords(batch_id=number).SerializeToString() for number in range(2000)]
        )

        def unsent() -> list[int]:
            return [stream._call.unsent for stream in list(receiver._streams)]

        wait_until(lambda: unsent() == [MAX_UNANSWERED])
        for _ in range(3):
            export(port, request(1).SerializeToString())
        assert unsent() == [MAX_UNANSWERED]
    finally:
        attacker.close()


def test_open_streams_end_when_the_receiver_does(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        with requests_to(tmp_path, "otlp_grpc") as (_, port):
            stream = stack.enter_context(connect(port))
            stream.send(ArrowSender().batch(tables_of(request(1))))
            stream.status()
        assert stream.end() is grpc.StatusCode.OK

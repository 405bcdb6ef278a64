"""OTLP over gRPC: as over HTTP, with gRPC's own codes, and packed requests within bounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from penstock.handover import stored_waits
from penstock.ingest.requests.large_requests import INLINE_BYTES
from penstock.ingest.requests.otlp_export import MAX_READS
from penstock.ingest.requests.otlp_grpc import MAX_STREAMS, OtlpGrpcReceiver
from penstock.process.servers.calls import address_of
from penstock.testing.pipe import wait_until
from tests.ingest.requests_life import Requests, requests_to
from tests.server import certificates
from tests.server.http2_attacker import Attacker
from tests.wire.otlp.otlp_requests import request

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
SLOW_READS = 4
"""The default ``max_unfinished`` by the default ``max_body``."""


@pytest.fixture
def otel(tmp_path: Path) -> Iterator[tuple[Requests, int]]:
    with requests_to(tmp_path, "otlp_grpc", max_line="64KiB", max_body="1MiB", annotate_source=True) as found:
        yield found


def export(port: int, data: bytes, compression: Any = None, channel: grpc.Channel | None = None, **more: Any) -> bytes:
    options = [("grpc.max_send_message_length", -1)]
    with channel or grpc.insecure_channel(f"127.0.0.1:{port}", options, compression) as opened:
        return bytes(opened.unary_unary(EXPORT)(data, timeout=30, wait_for_ready=True, **more))


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_records_are_messages_however_they_are_packed(otel: tuple[Requests, int], compression: Any) -> None:
    running, port = otel
    answer = ExportLogsServiceResponse.FromString(export(port, request(3).SerializeToString(), compression))
    assert answer == ExportLogsServiceResponse()
    assert [row["codec"] for row in running.rows] == ["otlp"] * 3
    assert running.rows[0]["annotations"]["resource.service.part0"] == "value 0"
    assert running.rows[0]["annotations"]["source_address"] == "127.0.0.1"


def test_refused_records_are_reported(otel: tuple[Requests, int]) -> None:
    running, port = otel
    sent = request(3)
    sent.resource_logs[0].scope_logs[0].log_records[1].body.string_value = "x" * 70_000
    partial_success = ExportLogsServiceResponse.FromString(export(port, sent.SerializeToString())).partial_success
    assert (partial_success.rejected_log_records, len(running.rows)) == (1, 2)


def test_request_too_large_after_decompression_is_refused_and_counted(otel: tuple[Requests, int]) -> None:
    running, port = otel
    with pytest.raises(grpc.RpcError) as refused:
        export(port, bytes(200 << 20), grpc.Compression.Gzip)
    assert code_of(refused.value) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max_body (" in str(refused.value)
    wait_until(lambda: running.counts["request_refused.oversize"] == 1)


def test_calls_that_grpc_refuses_itself_are_counted(otel: tuple[Requests, int]) -> None:
    running, port = otel
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_send_message_length", -1)]) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(EXPORT)(bytes(2 << 20), timeout=30, wait_for_ready=True)
        assert code_of(refused.value) is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(EXPORT.replace("logs.v1.Logs", "trace.v1.Trace"))(b"", timeout=30)
        assert code_of(refused.value) is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as refused:
            channel.stream_unary(EXPORT)(iter(()), timeout=30)
        assert code_of(refused.value) is grpc.StatusCode.INVALID_ARGUMENT
    expected = {f"request_refused.{reason}": 1 for reason in ("incomplete", "path", "syntax")}
    wait_until(lambda: running.counts == expected)


def test_malformed_ids_are_reported(otel: tuple[Requests, int]) -> None:
    running, port = otel
    sent = request(3)
    first, second, _ = sent.resource_logs[0].scope_logs[0].log_records
    first.trace_id, second.trace_id, second.span_id = b"short", bytes(17), b"x" * 16
    answer = ExportLogsServiceResponse.FromString(export(port, sent.SerializeToString())).partial_success
    assert (answer.rejected_log_records, answer.error_message.partition(" left")[0]) == (
        0,
        "3 malformed trace_id or span_id",
    )
    assert ["trace_id" in row["annotations"] for row in running.rows] == [False, False, True]


def test_bytes_that_are_no_request_are_refused_and_the_listener_goes_on(otel: tuple[Requests, int]) -> None:
    running, port = otel
    with pytest.raises(grpc.RpcError) as refused:
        export(port, b"\x0b nope")
    assert code_of(refused.value) is grpc.StatusCode.INVALID_ARGUMENT
    wait_until(lambda: running.counts["request_refused.syntax"] == 1)
    export(port, request(1).SerializeToString())
    assert len(running.rows) == 1


def test_late_log_answers_unavailable_with_a_retry_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_waits.StoredWaits.__init__, "__defaults__", (0.2, time.monotonic))
    with requests_to(tmp_path, "otlp_grpc") as (running, port):
        running.log_goes_on = False
        with pytest.raises(grpc.RpcError) as refused:
            export(port, request(1).SerializeToString())
        assert code_of(refused.value) is grpc.StatusCode.UNAVAILABLE
        trailers = dict(refused.value.trailing_metadata())  # type: ignore[attr-defined]
        wait = RetryInfo()
        assert Status.FromString(trailers["grpc-status-details-bin"]).details[0].Unpack(wait)
        assert wait.retry_delay.seconds == 1
        running.log_goes_on = True


def test_tokens_and_networks_decide_who_is_let_in(tmp_path: Path) -> None:
    with requests_to(tmp_path / "a", "otlp_grpc", tokens=["secret"]) as (running, port):
        data = request(1).SerializeToString()
        export(port, data, metadata=(("authorization", "Bearer secret"),))
        for metadata, code in (((), "UNAUTHENTICATED"), ((("authorization", "Bearer no"),), "PERMISSION_DENIED")):
            with pytest.raises(grpc.RpcError) as refused:
                export(port, data, metadata=metadata)
            assert code_of(refused.value).name == code
        assert len(running.rows) == 1
    with requests_to(tmp_path / "b", "otlp_grpc", allow_from=["10.0.0.0/8"]) as (running, port):
        with pytest.raises(grpc.RpcError) as refused:
            export(port, data)
        assert code_of(refused.value).name == "PERMISSION_DENIED"
        wait_until(lambda: running.counts["request_refused.network"] == 1)


def test_with_tls_the_names_of_certificates_decide_and_are_annotations(tmp_path: Path) -> None:
    made = {name: certificates.make(tmp_path, name) for name in ("server", "ca")}
    made |= {name: certificates.make(tmp_path, name, issuer=made["ca"]) for name in ("a.example.com", "b.other.org")}
    tls = {"tls_cert": made["server"].cert, "tls_key": made["server"].key, "client_ca": made["ca"].cert}
    data = request(1).SerializeToString()
    with requests_to(tmp_path / "life", "otlp_grpc", client_names=["*.example.com"], **tls) as (running, port):
        for name in ("a.example.com", "b.other.org"):
            credentials = grpc.ssl_channel_credentials(
                made["server"].cert.read_bytes(), made[name].key.read_bytes(), made[name].cert.read_bytes()
            )
            options = [("grpc.ssl_target_name_override", "server")]
            channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
            if name == "a.example.com":
                export(port, data, channel=channel)
            else:
                with pytest.raises(grpc.RpcError) as refused:
                    export(port, data, channel=channel)
                assert code_of(refused.value).name == "PERMISSION_DENIED"
        assert [row["annotations"]["certificate_name"] for row in running.rows] == ["a.example.com"]


def test_large_request_whose_client_has_left_is_not_parsed(tmp_path: Path) -> None:
    data = request(2000).SerializeToString()
    assert len(data) > INLINE_BYTES
    with requests_to(tmp_path, "otlp_grpc") as (running, port):
        assert isinstance(running.receiver, OtlpGrpcReceiver)
        earlier = threading.Event()
        running.receiver._large.submit(earlier.wait)  # type: ignore[arg-type]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(EXPORT).future(data, timeout=30, wait_for_ready=True)
            wait_until(lambda: running.receiver._parsed)  # type: ignore[union-attr]
            call.cancel()
        wait_until(lambda: running.counts["request_refused.left"] == 1)
        assert (len(running.receiver._parsed), running.receiver._unfinished_bytes) == (0, 0)
        earlier.set()
        export(port, data)
    assert len(running.rows) == 2000


def test_silent_streams_do_not_block_honest_senders(tmp_path: Path) -> None:
    finished = threading.Event()

    def silent() -> Iterator[bytes]:
        finished.wait(60)
        yield from ()

    with requests_to(tmp_path, "otlp_grpc", request_timeout=12) as (running, port):
        threads = threading.active_count()
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(f"127.0.0.1:{port}", options) for _ in range(4)]
        calls = [channel.stream_unary(EXPORT).future(silent()) for channel in channels for _ in range(MAX_STREAMS)]
        sent_by = threading.active_count() - threads
        wait_until(lambda: running.counts["request_refused.busy"] >= len(calls) - MAX_READS)
        for _ in range(5):
            began = time.monotonic()
            export(port, request(1).SerializeToString())
            assert time.monotonic() - began < 10
        wait_until(lambda: all(call.done() for call in calls))
        assert len({code_of(call) for call in calls}) == 2
        wait_until(lambda: running.counts["request_refused.late"] == SLOW_READS)
        finished.set()
        assert threading.active_count() <= threads + sent_by + 3
        for channel in channels:
            channel.close()


def test_connections_that_open_and_reset_streams_do_not_block_honest_senders(tmp_path: Path) -> None:
    with requests_to(tmp_path, "otlp_grpc") as (running, port):
        attacker = Attacker(f"127.0.0.1:{port}", EXPORT)
        attack = threading.Thread(target=attacker.run, args=(8, 2500), kwargs={"reset": True})
        attack.start()
        waits = []
        try:
            while attack.is_alive() or len(waits) < 5:
                began = time.monotonic()
                export(port, request(1).SerializeToString())
                waits.append(time.monotonic() - began)
        finally:
            attack.join()
            attacker.close()
        assert max(waits) < 5
        wait_until(lambda: len(running.rows) == len(waits))


def test_request_of_too_many_records_is_refused(tmp_path: Path) -> None:
    with requests_to(tmp_path, "otlp_grpc", max_messages=2) as (running, port):
        export(port, request(2).SerializeToString())
        with pytest.raises(grpc.RpcError) as refused:
            export(port, request(3).SerializeToString())
        assert code_of(refused.value).name == "RESOURCE_EXHAUSTED"
        wait_until(lambda: running.counts["request_refused.messages"] == 1)
        assert len(running.rows) == 2


def test_renewed_certificate_is_shown_and_removed_client_ca_is_not_trusted(tmp_path: Path) -> None:
    made = {name: certificates.make(tmp_path, name) for name in ("server", "old", "new", "server2")}
    clients = {name: certificates.make(tmp_path, f"client-{name}", issuer=made[name]) for name in ("old", "new")}
    files = {name: tmp_path / name for name in ("cert", "key", "ca")}

    def install(server: str, ca: str) -> None:
        files["cert"].write_bytes(made[server].cert.read_bytes())
        files["key"].write_bytes(made[server].key.read_bytes())
        files["key"].chmod(0o600)
        files["ca"].write_bytes(made[ca].cert.read_bytes())

    install("server", "old")
    tls = {"tls_cert": files["cert"], "tls_key": files["key"], "client_ca": files["ca"]}
    with requests_to(tmp_path / "life", "otlp_grpc", **tls) as (_, port):

        def send(server: str, client: str, **more: Any) -> None:
            credentials = grpc.ssl_channel_credentials(
                made[server].cert.read_bytes(), clients[client].key.read_bytes(), clients[client].cert.read_bytes()
            )
            options = [("grpc.ssl_target_name_override", server), ("grpc.use_local_subchannel_pool", 1)]
            with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
                channel.unary_unary(EXPORT)(request(1).SerializeToString(), timeout=20, **more)

        send("server", "old", wait_for_ready=True)
        install("server2", "new")
        send("server2", "new")
        with pytest.raises(grpc.RpcError):
            send("server2", "old")


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:127.0.0.1:4000", "127.0.0.1"), ("ipv6:%5B::1%5D:4000", "::1"), ("ipv6:[::1]:4000", "::1"), ("unix:", "")],
)
def test_the_address_of_a_peer(peer: str, address: str) -> None:
    assert address_of(peer) == address


@given(st.text(max_size=30))
def test_any_peer_has_an_address_or_none(peer: str) -> None:
    assert isinstance(address_of(peer), str)


def code_of(error: Any) -> grpc.StatusCode:
    return error.code()  # type: ignore[no-any-return]

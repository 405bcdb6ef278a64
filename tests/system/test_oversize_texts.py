"""A text or request over a limit is refused with size, limit and key, on every way in."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from penstock.testing.pipe import Pipe, wait_until
from tests.system.configured_pipe import SMALL, configured_pipe, listener

MAX_LINE, MAX_BODY = 32 << 10, 1 << 20
LIMITS = ('max_line = "32KiB"', 'max_body = "1MiB"')
LISTENERS = (
    SMALL
    + listener("web", "http", *LIMITS)
    + listener("otel", "otlp_grpc", *LIMITS)
    + listener("gelf", "tcp", 'codec = "gelf"', 'max_line = "32KiB"')
)
LARGE = "x" * 40_000
JSON, NDJSON = "application/json", "application/x-ndjson"
OTLP = [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": text}} for text in ("ok", LARGE)]}]}]
TEXTS = {
    "loki": ("/loki/api/v1/push", JSON, json.dumps({"streams": [{"stream": {"a": "b"}, "values": [["1", LARGE]]}]})),
    "hec": ("/services/collector/event", JSON, json.dumps({"event": LARGE})),
    "hec raw": ("/services/collector/raw", "text/plain", LARGE),
    "bulk": ("/_bulk", NDJSON, f'{{"index":{{"_index":"i"}}}}\n{json.dumps({"m": LARGE})}\n'),
    "otlp": ("/v1/logs", JSON, json.dumps({"resourceLogs": OTLP})),
    "json": ("/", JSON, json.dumps({"m": LARGE})),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    with configured_pipe(tmp_path_factory.mktemp("pipe"), LISTENERS) as pipe:
        yield pipe


def post(pipe: Pipe, path: str, content_type: str, body: str | bytes) -> str:
    host, port = pipe.address("web")
    headers = {"content-type": content_type, "authorization": "Splunk any"}
    return httpx.post(f"http://{host}:{port}{path}", content=body, headers=headers, timeout=30).text


@pytest.mark.parametrize("name", TEXTS)
def test_text_over_max_line_is_named_with_size_limit_and_key(here: Pipe, name: str) -> None:
    path, content_type, body = TEXTS[name]
    # The size of a message is that of its text, which may be its JSON, and of its annotations.
    more = {"loki": 14, "bulk": 15, "json": 9}.get(name, 0)
    expected = f"a message of {len(LARGE) + more} bytes is larger than max_line ({MAX_LINE} bytes)"
    assert expected in post(here, path, content_type, body)


@pytest.mark.parametrize("name", TEXTS)
def test_request_over_max_body_is_named_with_size_limit_and_key(here: Pipe, name: str) -> None:
    path, content_type, _ = TEXTS[name]
    expected = f"a request of {MAX_BODY + 1} bytes is larger than max_body ({MAX_BODY} bytes)"
    assert expected in post(here, path, content_type, bytes(MAX_BODY + 1))


def test_grpc_names_size_limit_and_for_a_text_the_key(here: Pipe) -> None:
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add().body.string_value = LARGE
    with grpc.insecure_channel("{}:{}".format(*here.address("otel"))) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        answer = ExportLogsServiceResponse.FromString(export(request.SerializeToString()))
        assert f"{len(LARGE)} bytes is larger than max_line ({MAX_LINE} bytes)" in answer.partial_success.error_message
        with pytest.raises(grpc.RpcError) as refused:
            export(bytes(MAX_BODY + 1))
    # gRPC refuses it before the listener sees it: its own text has no key (docs/requests.md).
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    assert f"larger than max ({MAX_BODY + 1} vs. {MAX_BODY})" in refused.value.details()  # type: ignore[attr-defined]


def test_gelf_over_tcp_is_named_in_the_log_with_size_limit_and_key(here: Pipe) -> None:
    message = json.dumps({"version": "1.1", "host": "h", "short_message": LARGE}).encode()
    with socket.create_connection(here.address("gelf")) as connection:
        connection.sendall(message + b"\0")
    # GELF has no answers: the log is what its operator sees.
    lines = (
        f"lines longer than max_line ({MAX_LINE} bytes): 1",
        f"bytes of lines longer than max_line ({MAX_LINE} bytes): {len(message)}",
    )
    wait_until(lambda: all(line in here.output.read_text() for line in lines), what=f"both are logged: {lines}")

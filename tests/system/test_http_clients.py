"""Real clients of the HTTP listeners against a real pipe: each message is logged once, and the balance closes."""

from __future__ import annotations

import contextlib
import gzip
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import logging_loki
import pytest
from elasticsearch import Elasticsearch
from elasticsearch.helpers import bulk, streaming_bulk
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from splunk_hec_handler import SplunkHecHandler

from penstock.ledger.receipt import receipt
from penstock.testing.pipe import Pipe, free_ports, wait_until
from tests.small_disk import small_file_system
from tests.system import topic_files
from tests.system.configured_pipe import configured_pipe

LISTENERS = """
[buffer]
term_length = "2MiB"

[[listener]]
name = "web"
protocol = "http"
port = {}
max_line = "64KiB"

[[listener]]
name = "otel"
protocol = "otlp_grpc"
port = {}
max_line = "64KiB"
max_body = "4MiB"
"""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    with configured_pipe(tmp_path, LISTENERS.format(*free_ports(2))) as running:
        yield running


def url(pipe: Pipe, listener: str = "web") -> str:
    host, port = pipe.address(listener)
    return f"http://{host}:{port}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    with configured_pipe(tmp_path_factory.mktemp("shared"), LISTENERS.format(*free_ports(2))) as running:
        yield running


def stored(pipe: Pipe) -> int:
    """Return the number of entries."""
    topics = pipe.settled()["topics"]
    return int(topics[0]["end"]) if topics else 0


def entries(pipe: Pipe, count: int, begin: int = 0) -> list[dict[str, Any]]:
    """Return the entries of the topic from ``begin`` on, read from its segment files."""
    wait_until(lambda: stored(pipe) == begin + count, what=f"{count} entries")
    assert pipe.settled()["unaccounted"] == 0
    return topic_files.entries(pipe, "events")[begin:]


def log_through(exporter: Any, count: int) -> None:
    """Log like an application with OpenTelemetry's handler on its logger."""
    provider = LoggerProvider(Resource.create({"service.name": "shop"}))
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = logging.getLogger(f"shop.{id(exporter)}")
    logger.propagate = False
    logger.addHandler(LoggingHandler(logger_provider=provider))
    for number in range(count):
        logger.error("order %d", number, extra={"basket": number})
    provider.shutdown()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_opentelemetrys_sdk_over_grpc_and_http(shared: Pipe) -> None:
    pipe, begin = shared, stored(shared)
    log_through(GrpcExporter(endpoint=url(pipe, "otel"), insecure=True), 1000)
    log_through(HttpExporter(endpoint=f"{url(pipe)}/v1/logs", compression=Compression.Gzip), 1000)
    rows = entries(pipe, 2000, begin)
    assert sorted(row["payload"] for row in rows) == sorted(2 * [b"order %d" % number for number in range(1000)])
    for row in rows:
        annotations = row["annotations"]
        assert annotations["resource.service.name"] == "shop"
        assert annotations["severity_number"] == "17"
        assert annotations["attributes.basket"] == row["payload"].decode().removeprefix("order ")
        assert abs(int(annotations["time"]) / 1e9 - time.time()) < 600


def test_elasticsearchs_bulk_helpers(shared: Pipe) -> None:
    pipe, begin = shared, stored(shared)
    with Elasticsearch(url(pipe)) as client:
        assert client.ping()
        documents = [{"_index": "shop", "_id": str(number), "order": number} for number in range(2000)]
        assert bulk(client, documents) == (2000, [])
        mixed = [{"_index": "shop", "order": -1}, {"_op_type": "delete", "_index": "shop", "_id": "1"}]
        assert [accepted for accepted, _ in streaming_bulk(client, mixed, raise_on_error=False)] == [True, False]
    rows = entries(pipe, 2001, begin)
    assert {row["payload"] for row in rows} == {b'{"order":%d}' % number for number in range(-1, 2000)}
    assert rows[7]["annotations"] == {"index": "shop", "id": "7"}


def test_documents_created_again_by_elasticsearchs_helpers_are_deduplicated(shared: Pipe) -> None:
    pipe, begin = shared, stored(shared)
    documents = [{"_op_type": "create", "_index": "shop", "_id": str(number), "order": number} for number in range(9)]
    with Elasticsearch(url(pipe)) as client:
        assert bulk(client, documents) == bulk(client, documents) == (9, [])
    uuids = [row["annotations"]["uuid"] for row in entries(pipe, 18, begin)]
    assert uuids[:9] == uuids[9:]
    assert len(set(uuids)) == 9
    assert {len(uuid) for uuid in uuids} == {32}


def test_a_client_of_splunks_event_collector(shared: Pipe) -> None:
    pipe, begin = shared, stored(shared)
    host, port = pipe.address("web")
    handler = SplunkHecHandler(host, "token", port=port, proto="http", source="orders", hostname="me")
    for number in range(50):
        handler.handle(logging.LogRecord("a", logging.INFO, "", 0, {"order": number}, (), None))
    rows = entries(pipe, 50, begin)
    assert {row["payload"] for row in rows} == {b'{"log_level":"INFO","order":%d}' % number for number in range(50)}
    assert {(row["annotations"]["host"], row["annotations"]["source"]) for row in rows} == {("me", "orders")}


def test_a_handler_for_loki(shared: Pipe) -> None:
    pipe, begin = shared, stored(shared)
    handler = logging_loki.LokiHandler(f"{url(pipe)}/loki/api/v1/push", tags={"application": "shop"}, version="1")
    handler.handleError = fail  # type: ignore[method-assign]
    for number in range(50):
        handler.handle(logging.LogRecord("a", logging.INFO, "", 0, "order %d", (number,), None))
    rows = entries(pipe, 50, begin)
    assert {row["payload"] for row in rows} == {b"order %d" % number for number in range(50)}
    assert {row["annotations"]["labels.application"] for row in rows} == {"shop"}


def fail(record: logging.LogRecord) -> None:
    raise AssertionError(record)


Send = Callable[[Pipe, int], bool]


def by_json(pipe: Pipe, number: int) -> bool:
    return httpx.post(url(pipe), content=b'"%d"' % number, timeout=30).is_success


def by_hec(pipe: Pipe, number: int) -> bool:
    event = f"{url(pipe)}/services/collector/event?channel=c"
    response = httpx.post(event, content=b'{"event":"%d"}' % number, timeout=30)
    if not response.is_success:
        return False
    acknowledgement = httpx.post(
        f"{url(pipe)}/services/collector/ack?channel=c", json={"acks": [response.json()["ackId"]]}, timeout=30
    )
    return acknowledgement.is_success and all(acknowledgement.json()["acks"].values())


def by_bulk(pipe: Pipe, number: int) -> bool:
    response = httpx.post(f"{url(pipe)}/i/_bulk", content=b'{"index":{}}\n{"n":%d}\n' % number, timeout=30)
    return response.is_success and not response.json()["errors"]


def by_otlp(pipe: Pipe, number: int) -> bool:
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": str(number)}}]}]}]}
    return httpx.post(f"{url(pipe)}/v1/logs", json=body, timeout=30).is_success


class Load:
    """Senders that send numbers in order, each repeated until it is acknowledged."""

    def __init__(self, pipe: Pipe, ways: list[Send]) -> None:
        self.acknowledged: list[int] = []
        self._pipe, self._stop = pipe, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n, way)) for n, way in enumerate(ways)]
        for thread in self._threads:
            thread.start()

    def _run(self, first: int, way: Send) -> None:
        number = first
        while not self._stop.is_set():
            try:
                if way(self._pipe, number):
                    self.acknowledged.append(number)
                    number += len(self._threads)
            except (httpx.TransportError, OSError):
                self._stop.wait(0.05)

    def end(self) -> set[int]:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        return set(self.acknowledged)


def killed_under_load(pipe: Pipe, kills: int) -> None:
    load = Load(pipe, [by_json, by_hec, by_bulk, by_otlp])
    victims = ["receiver web", "log daemon"]
    for number in range(kills):
        sent = len(load.acknowledged)
        wait_until(lambda sent=sent: len(load.acknowledged) > sent + 3, 120, "senders go on")  # type: ignore[misc]
        if number % 3 == 2:
            pipe.kill_all()
            pipe.start(wait=False)
            wait_until(pipe.answers, 120, "it is there again")
        else:
            pipe.kill(victims[number % 3])
    acknowledged = load.end()
    settled = pipe.settled()
    assert settled["unaccounted"] == 0
    rows = entries(pipe, settled["topics"][0]["end"])
    numbers = {int(row["payload"].strip(b'"{}').rpartition(b":")[2]) for row in rows}
    assert len(acknowledged) > 3 * kills
    assert acknowledged <= numbers, "acknowledged, and lost"


@pytest.mark.survives("requests", "SIGKILL")
def test_acknowledged_messages_survive_kills(pipe: Pipe) -> None:
    killed_under_load(pipe, 3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_acknowledged_messages_survive_thirty_kills(pipe: Pipe) -> None:
    killed_under_load(pipe, 30)


@pytest.mark.survives("requests", "SIGSTOP")
def test_senders_wait_without_acknowledgements_while_the_log_is_stopped(shared: Pipe) -> None:
    pipe = shared
    assert by_json(pipe, 1)
    with pipe.paused("log daemon"):
        assert not by_json(pipe, 2)
    wait_until(lambda: by_json(pipe, 3))
    pipe.signal("log daemon", signal.SIGCONT)
    assert pipe.settled()["unaccounted"] == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The topics of ``pipe``, on a file system of their own."""
    with small_file_system(tmp_path / "data" / "topics", "4m") as topics:
        yield topics


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.survives("requests", "full disk")
def test_senders_are_told_at_once_that_the_disk_is_full_and_when_to_retry(small_disk: Path, pipe: Pipe) -> None:
    assert by_json(pipe, 1)
    with open(small_disk / "ballast", "ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(bytes(4096)):
            pass
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "x" * 50_000
    # The first request is written before anybody knows that the disk is full; it may fit into the last bytes.
    answer = wait_until(lambda: refused(pipe, "/v1/logs", logs.SerializeToString()))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert b"the disk is full" in answer.content
    answers = {path: refused(pipe, path, body) for path, body in REQUESTS.items()}
    assert {
        path: answer and (answer.status_code, answer.headers["retry-after"]) for path, answer in answers.items()
    } == {
        "/": (503, "5"),
        "/_bulk": (429, "5"),
        "/services/collector/event": (503, "5"),
        "/loki/api/v1/push": (503, "5"),
    }
    with grpc.insecure_channel(":".join(map(str, pipe.address("otel")))) as channel:
        export = LogsServiceStub(channel).Export
        error = wait_until(lambda: error_of(export, logs))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "the disk is full" in error.details()
        retry_info = RetryInfo()
        status = Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
        assert status.details[0].Unpack(retry_info)
        assert retry_info.retry_delay.seconds == 5
    small_disk.joinpath("ballast").unlink()
    exporter = HttpExporter(endpoint=f"{url(pipe)}/v1/logs")
    log_through(exporter, 10)
    assert by_json(pipe, 2)
    balance = pipe.settled()
    assert (balance["unaccounted"], receipt(balance).lost) == (0, 0)
    assert pipe.counts("web")["request_refused.disk_full"] >= 5
    assert not pipe.counts("web")["request_refused.late"]


REQUESTS = {
    "/": b'"one"',
    "/_bulk": b'{"create": {"_index": "i"}}\n{"a": 1}\n',
    "/services/collector/event": b'{"event": "one"}',
    "/loki/api/v1/push": b'{"streams": [{"stream": {"a": "b"}, "values": [["1", "one"]]}]}',
}


def refused(pipe: Pipe, path: str, body: bytes) -> httpx.Response | None:
    """Return the answer to a request if it is refused."""
    kind = "application/x-protobuf" if path == "/v1/logs" else "application/json"
    answer = httpx.post(f"{url(pipe)}{path}", content=body, headers={"content-type": kind}, timeout=30)
    return None if answer.is_success else answer


def error_of(export: Callable[..., Any], logs: ExportLogsServiceRequest) -> Any:
    """Return the error of a call, or None."""
    try:
        export(logs, timeout=30)
    except grpc.RpcError as error:
        return error
    return None


def status_during_reload(pipe: Pipe, content: bytes) -> int:
    """Return the status of an answer; 0 if the receiver that ends has closed the connection before."""
    try:
        return httpx.post(url(pipe), content=content, timeout=30).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.survives("requests", "changed configuration")
def test_listeners_are_added_changed_and_removed_at_run_time(pipe: Pipe) -> None:
    assert by_json(pipe, 1)
    # Before the reload: it may be done before the first request of the wait below.
    assert httpx.post(url(pipe), content=b"1", timeout=30).is_success
    assert pipe.config
    before = pipe.config.read_text()
    pipe.config.write_text(before.replace('name = "web"', 'name = "web"\ntokens = ["secret"]'))
    assert pipe.process
    pipe.process.send_signal(signal.SIGHUP)
    wait_until(lambda: status_during_reload(pipe, b"1") == 401)
    assert httpx.post(url(pipe), content=b"2", headers={"authorization": "Bearer secret"}, timeout=30).is_success
    log_through(GrpcExporter(endpoint=url(pipe, "otel"), insecure=True), 10)
    pipe.config.write_text(before.replace('max_body = "4MiB"', 'max_body = "2MiB"'))
    pipe.process.send_signal(signal.SIGHUP)
    wait_until(lambda: status_during_reload(pipe, b"3") == 200)
    log_through(GrpcExporter(endpoint=url(pipe, "otel"), insecure=True), 10)
    payloads = [row["payload"] for row in entries(pipe, pipe.settled()["topics"][0]["end"])]
    assert len([payload for payload in payloads if payload.startswith(b"order")]) == 20
    assert {b"1", b"2", b"3"} <= set(payloads)


def test_refused_messages_are_in_the_balance_which_closes(shared: Pipe) -> None:
    before, base = shared.counts("web"), url(shared)
    large = b'{"m":"' + b"x" * 70_000 + b'"}'
    assert httpx.post(base, content=b'{"a":1}\nnope\n' + large, timeout=30).json()["refused"] == 2
    httpx.post(f"{base}/i/_bulk", content=b'{"delete":{"_id":"1"}}\n', timeout=30)
    bomb = gzip.compress(bytes(64 << 20))
    assert httpx.post(base, content=bomb, headers={"content-encoding": "gzip"}, timeout=30).status_code == 413
    assert httpx.post(f"{base}/elsewhere", content=b"1", timeout=30).status_code == 404
    expected = {
        "seen": 4,
        "accepted": 1,
        **dict.fromkeys(("refused.syntax", "refused.oversize", "refused.kind"), 1),
        **dict.fromkeys(("request_refused.oversize", "request_refused.path"), 1),
    }
    wait_until(lambda: Counter(shared.counts("web")) - Counter(before) == expected)
    assert shared.settled()["unaccounted"] == 0
    assert not any(listener["books"] for listener in shared.settled()["listeners"])

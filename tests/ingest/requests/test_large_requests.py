"""Small requests that cause much work are refused or read in turns, and other senders are served in between."""

from __future__ import annotations

import gzip
import mmap
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from penstock.testing.pipe import wait_until
from tests.ingest.requests_life import Requests, requests_to

JSON, PROTOBUF = "application/json", "application/x-protobuf"
SERVED_WITHIN_S = 3.0
"""The promise is 100 ms. A machine with ten waiting processes for each core, as in a run of all tests, took 1.9 s."""
MORE_MEMORY = 600 << 20
"""Bytes by which the process may grow during an attack."""


def empty_records() -> bytes:
    records = [LogRecord()] * 1_000_000
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=records)])])
    return request.SerializeToString()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Requests, str]]:
    with requests_to(tmp_path, "http", term_length=32 << 20) as (running, port):
        yield running, f"http://127.0.0.1:{port}"


def answers_during(attack: Callable[[], httpx.Response], times: int, url: str) -> tuple[list[httpx.Response], float]:
    """Return the answers to the attack, sent so often at once, and the longest wait of an honest client."""
    answers: list[httpx.Response] = []
    attackers = [threading.Thread(target=lambda: answers.append(attack())) for _ in range(times)]
    waits = []
    with httpx.Client(base_url=url, timeout=60) as client:
        assert client.post("/", content=b'{"honest":0}').status_code == 200
        for attacker in attackers:
            attacker.start()
        while any(attacker.is_alive() for attacker in attackers) or not waits:
            began = time.monotonic()
            assert client.post("/", content=b'{"honest":1}').status_code == 200
            waits.append(time.monotonic() - began)
            time.sleep(0.01)
    for attacker in attackers:
        attacker.join()
    return answers, max(waits)


def resident_bytes() -> int:
    """Return the memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.parametrize(
    ("path", "make_body", "content_type"),
    [
        ("/", lambda: b'{"a":1}\n' * 1_970_000, "application/json"),
        ("/", lambda: b"[" + b"{}," * 1_970_000 + b"{}]", "application/json"),
        ("/_bulk", lambda: b'{"index":{"_index":"i"}}\n{}\n' * 500_000, "application/x-ndjson"),
        ("/services/collector/event", lambda: b'{"event":"a"}' * 1_000_000, "application/json"),
        ("/services/collector/event", lambda: b'{"event":"a"}\n' * 1_000_000, "application/json"),
        ("/services/collector/raw", lambda: b"a\n" * 5_000_000, "text/plain"),
        (
            "/loki/api/v1/push",
            lambda: b'{"streams":[{"stream":{"a":"b"},"values":[' + b'["1","a"],' * 1_000_000 + b'["1","a"]]}]}',
            "application/json",
        ),
        (
            "/v1/logs",
            lambda: b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[' + b"{}," * 1_000_000 + b"{}]}]}]}",
            "application/json",
        ),
        ("/v1/logs", empty_records, "application/x-protobuf"),
    ],
    ids=["json lines", "json array", "bulk", "hec", "hec lines", "hec raw", "loki", "otlp json", "otlp"],
)
def test_request_of_too_many_messages_is_refused_while_others_are_served(
    web: tuple[Requests, str], path: str, make_body: Callable[[], bytes], content_type: str
) -> None:
    running, url = web
    packed = gzip.compress(make_body(), 1)
    headers = {"content-type": content_type, "content-encoding": "gzip"}
    before = resident_bytes()
    answers, longest = answers_during(
        lambda: httpx.post(url + path, content=packed, headers=headers, timeout=60), 3, url
    )
    assert [answer.status_code for answer in answers] == [413] * 3
    assert longest < SERVED_WITHIN_S
    assert resident_bytes() - before < MORE_MEMORY
    assert {row["payload"] for row in running.rows} <= {b'{"honest":0}', b'{"honest":1}'}
    wait_until(lambda: refused_requests(running) == 3)


def refused_requests(running: Requests) -> int:
    """Return the number of requests that were refused because of their messages, or of their values."""
    return running.counts["request_refused.messages"] + running.counts["request_refused.oversize"]


BODY_BYTES = 32 << 20
OTLP_RECORD = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{%b}]}]}]}'


def repeated(before: bytes, part: bytes, after: bytes, size: int = BODY_BYTES) -> bytes:
    """Return ``part`` as often as ``size`` bytes hold it."""
    return before + part * ((size - len(before) - len(after)) // len(part)) + after


def field(number: int, content: bytes) -> bytes:
    """Return a field of protobuf."""
    size, octets = len(content), bytearray([number << 3 | 2])
    while size > 127:
        octets.append(size & 127 | 128)
        size >>= 7
    return bytes(octets) + bytes([size]) + content


def snappy(body: bytes) -> bytes:
    return bytes(pa.compress(body, codec="snappy", asbytes=True))


OTLP_ATTRIBUTE, RESOURCE_ATTRIBUTE = field(6, b""), field(1, b"")
CONTAINERS: dict[str, tuple[str, Callable[[], bytes], str, int]] = {
    "otlp json resources": ("/v1/logs", lambda: repeated(b'{"resourceLogs":[', b"{},", b"{}]}"), JSON, 413),
    "otlp json scopes": ("/v1/logs", lambda: repeated(b'{"resourceLogs":[', b'{"scopeLogs":[]},', b"{}]}"), JSON, 413),
    "otlp json few resources": ("/v1/logs", lambda: b'{"resourceLogs":[%b{}]}' % (b"{}," * 300_000), JSON, 413),
    "otlp json few scopes": (
        "/v1/logs",
        lambda: b'{"resourceLogs":[{"scopeLogs":[%b{}]}]}' % (b"{}," * 300_000),
        JSON,
        413,
    ),
    "otlp json attributes": ("/v1/logs", lambda: OTLP_RECORD % repeated(b'"attributes":[', b"{},", b"{}]"), JSON, 413),
    "otlp json few attributes": (
        "/v1/logs",
        lambda: OTLP_RECORD % (b'"attributes":[%b{}]' % (b"{}," * 800_000)),
        JSON,
        200,
    ),
    "otlp json numbers": ("/v1/logs", lambda: repeated(b'{"resourceLogs":[],"x":[', b"1,", b"1]}"), JSON, 413),
    "otlp resources": ("/v1/logs", lambda: field(1, b"") * 16_000_000, PROTOBUF, 413),
    "otlp few resources": ("/v1/logs", lambda: field(1, b"") * 300_000, PROTOBUF, 413),
    "otlp scopes": ("/v1/logs", lambda: field(1, field(2, b"") * 16_000_000), PROTOBUF, 413),
    "otlp attributes": ("/v1/logs", lambda: field(1, field(2, field(2, OTLP_ATTRIBUTE * 16_000_000))), PROTOBUF, 200),
    "otlp array": (
        "/v1/logs",
        lambda: field(1, field(2, field(2, field(5, field(5, RESOURCE_ATTRIBUTE * 16_000_000))))),
        PROTOBUF,
        200,
    ),
    "otlp resource": (
        "/v1/logs",
        lambda: field(1, field(1, RESOURCE_ATTRIBUTE * 16_000_000) + field(2, field(2, b""))),
        PROTOBUF,
        200,
    ),
    "loki json streams": (
        "/loki/api/v1/push",
        lambda: repeated(b'{"streams":[', b'{"values":[]},', b"{}]}"),
        JSON,
        413,
    ),
    "loki json labels": (
        "/loki/api/v1/push",
        lambda: b'{"streams":[{"stream":{%b},"values":[["1","a"]]}]}' % repeated(b'"":""', b',"":""', b"", 9 << 20),
        JSON,
        400,
    ),
    "loki labels of many": (
        "/loki/api/v1/push",
        lambda: (
            b'{"streams":[{"stream":{"a":"%b"},"values":[%b["1","a"]]}]}' % (b"a" * 1_100_000, b'["1","a"],' * 200_000)
        ),
        JSON,
        400,
    ),
    "loki streams": ("/loki/api/v1/push", lambda: snappy(field(1, b"") * 16_000_000), PROTOBUF, 413),
    "loki labels": (
        "/loki/api/v1/push",
        lambda: snappy(field(1, field(1, repeated(b"{", b'a="",', b"}", 31 << 20)))),
        PROTOBUF,
        413,
    ),
    "loki metadata": (
        "/loki/api/v1/push",
        lambda: snappy(field(1, field(2, field(3, b"") * 8_000_000))),
        PROTOBUF,
        413,
    ),
    "hec array": ("/services/collector/event", lambda: repeated(b"[", b"0,", b"0]"), JSON, 413),
    "hec fields": (
        "/services/collector/event",
        lambda: repeated(b'{"event":"a","fields":{', b'"":1,', b'"":1}}'),
        JSON,
        413,
    ),
    "hec repeated field": (
        "/services/collector/event",
        lambda: repeated(b'{"event":"a","fields":{', b'"":1,', b'"":1}}', 4 << 20),
        JSON,
        413,
    ),
    "hec acks": ("/services/collector/ack?channel=c", lambda: repeated(b'{"acks":[', b"1,", b"1]}"), JSON, 413),
    "hec few acks": ("/services/collector/ack?channel=c", lambda: b'{"acks":[%b1]}' % (b"1," * 300_000), JSON, 413),
    "json nested": ("/", lambda: repeated(b"[[", b"[],", b"0]]"), JSON, 413),
    "json document": ("/", lambda: repeated(b'{"a":[', b"[],", b"0]}"), JSON, 413),
    "json empty lines": ("/", lambda: repeated(b"1", b"\n", b"1"), JSON, 200),
    "bulk empty lines": ("/_bulk", lambda: repeated(b'{"index":{"_index":"i"}}\n{}', b"\n", b""), JSON, 200),
    "bulk action": ("/_bulk", lambda: repeated(b'{"index":{"_index":"i"', b',"":1', b"}}\n{}"), JSON, 413),
    "bulk document": ("/i/_doc", lambda: repeated(b'{"a":[', b"1,", b"1]}"), JSON, 413),
}
"""Path, body (made by its test: all are a gigabyte), type, and status of the answer."""


@pytest.mark.parametrize("name", CONTAINERS)
def test_request_of_too_many_containers_is_refused_or_read_while_others_are_served(
    web: tuple[Requests, str], name: str
) -> None:
    running, url = web
    path, make_body, content_type, status = CONTAINERS[name]
    body = make_body()
    headers = {"content-type": content_type, "content-encoding": "gzip"}
    if content_type == PROTOBUF and path != "/v1/logs":
        packed = body
        del headers["content-encoding"]
    else:
        packed = gzip.compress(body, 1)
    answers, longest = answers_during(
        lambda: httpx.post(url + path, content=packed, headers=headers, timeout=60), 1, url
    )
    print(f"MEASURED {name}: {len(packed)} bytes, others waited {longest * 1000:.0f} ms, {answers[0].text[:100]}")
    assert [answer.status_code for answer in answers] == [status]
    assert longest < SERVED_WITHIN_S
    if status == 413:
        wait_until(lambda: refused_requests(running) + running.counts["refused.oversize"] == 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/", b"1\n2\n3"),
        ("/", b"[1,2,3]"),
        ("/", b'{"a":1}\nno\n{"a":2}'),
        ("/_bulk", b'{"index":{"_index":"i"}}\n{}\n' * 3),
        ("/services/collector/event", b'{"event":"a"}' * 3),
        ("/services/collector/raw", b"a\nb\nc\n"),
        ("/loki/api/v1/push", b'{"streams":[{"stream":{},"values":[["1","a"],["2","b"],["3","c"]]}]}'),
        ("/v1/logs", b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},{},{}]}]}]}'),
    ],
)
@pytest.mark.parametrize(("max_messages", "statuses"), [(3, (200, 204)), (2, (413,))])
def test_request_is_refused_from_one_message_more_than_max_messages_on(
    tmp_path: Path, path: str, body: bytes, max_messages: int, statuses: tuple[int, ...]
) -> None:
    with requests_to(tmp_path, "http", max_messages=max_messages) as (running, port):
        headers = {"content-type": "application/json"}
        answer = httpx.post(f"http://127.0.0.1:{port}{path}", content=body, headers=headers, timeout=30)
        assert answer.status_code in statuses
        if answer.status_code == 413:
            assert not running.rows
            wait_until(lambda: running.counts["request_refused.messages"] == 1)


def chunked(url: str, chunks: int) -> bytes:
    head = f"POST / HTTP/1.1\r\nHost: {httpx.URL(url).host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"1\r\n1\r\n" * chunks


def send(url: str, octets: bytes) -> httpx.Response:
    """Send ``octets`` on a connection and return the status of the answer; 0 where the connection is reset."""
    with socket.create_connection((httpx.URL(url).host, httpx.URL(url).port), 60) as sock:
        try:
            sock.sendall(octets)
            return httpx.Response(int(sock.recv(100).split()[1]))
        except ConnectionError:
            return httpx.Response(0)


def test_bodies_of_200000_tiny_chunks_are_refused_while_others_are_served(web: tuple[Requests, str]) -> None:
    running, url = web
    octets = chunked(url, 200_000) + b"0\r\n\r\n"
    _, longest = answers_during(lambda: send(url, octets), 3, url)
    assert longest < SERVED_WITHIN_S
    wait_until(lambda: running.counts["request_refused.chunks"] == 3)


def test_sender_of_tiny_chunks_is_told_so(web: tuple[Requests, str]) -> None:
    _, url = web
    assert send(url, chunked(url, 5000)).status_code == 413


def test_body_of_few_tiny_chunks_is_taken(web: tuple[Requests, str]) -> None:
    running, url = web
    answer = httpx.post(url, content=(bytes([octet]) for octet in b'"%b"' % (b"a" * 3000)), timeout=30)
    assert answer.status_code == 200
    assert [row["payload"] for row in running.rows] == [b'"%b"' % (b"a" * 3000)]

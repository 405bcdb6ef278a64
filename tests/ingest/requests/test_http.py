"""The HTTP listener: protocols by path, bounded bodies, who is let in, and answers only once the log has it."""

from __future__ import annotations

import base64
import contextlib
import gzip
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from penstock.handover import stored_waits
from penstock.ingest.requests.http import HttpReceiver
from penstock.process.servers import http_connection
from penstock.testing.pipe import wait_until
from tests.ingest.requests_life import Requests, requests_to
from tests.server import certificates
from tests.wire.otlp.otlp_requests import request
from tests.wire.test_unpacking import framed_snappy

DOCUMENT = b'{"a":1}'


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Requests, httpx.Client]]:
    settings = {"max_line": "64KiB", "max_body": "1MiB", "annotate_source": True}
    with (
        requests_to(tmp_path, "http", **settings) as (running, port),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        yield running, client


def test_each_path_is_handled_by_its_protocol_and_messages_name_it(web: tuple[Requests, httpx.Client]) -> None:
    running, client = web
    streams = {"streams": [{"stream": {"job": "a"}, "values": [["1", "line"]]}]}
    answers = [
        client.post("/", content=DOCUMENT),
        client.post("/v1/logs", content=request(1).SerializeToString()),
        client.post("/services/collector/event", content=b'{"event":"e"}'),
        client.post("/i/_bulk", content=b'{"index":{}}\n{"b":1}\n'),
        client.post("/loki/api/v1/push", json=streams),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 204]
    assert [row["codec"] for row in running.rows] == ["json", "otlp", "hec", "bulk", "loki"]
    assert {row["annotations"]["source_address"] for row in running.rows} == {"127.0.0.1"}
    assert (running.counts["seen"], running.counts["accepted"]) == (5, 5)
    assert client.head("/").headers["x-elastic-product"] == "Elasticsearch"


def test_ipv4_sender_has_its_own_address_on_a_dual_stack_socket(tmp_path: Path) -> None:
    with requests_to(tmp_path, "http", host="::", annotate_source=True) as (running, port):
        assert httpx.post(f"http://127.0.0.1:{port}/", content=DOCUMENT).status_code == 200
        assert running.rows[0]["annotations"] == {"source_address": "127.0.0.1"}
        assert list(running.life.senders()) == ["127.0.0.1"]


def test_encoded_slash_of_a_path_does_not_separate_its_parts(web: tuple[Requests, httpx.Client]) -> None:
    running, client = web
    assert client.post("/%3Ca-%7Bnow%2Fd%7D%3E//_bulk/", content=b'{"index":{}}\n{"b":1}\n').status_code == 200
    assert client.put("/%C3%A9%2Fi/_doc/x%2F", content=b'{"b":1}').status_code == 201
    annotations = [row["annotations"] | {"source_address": ""} for row in running.rows]
    names = [{"index": "<a-{now/d}>"}, {"index": "\u00e9/i", "id": "x/"}]
    assert annotations == [own | {"source_address": ""} for own in names]
    assert client.post("/v1%2Flogs", content=request(1).SerializeToString()).status_code == 404


def test_parameter_with_several_texts_is_refused_by_hec_and_the_last_one_applies_in_bulk_as_in_elasticsearch(
    web: tuple[Requests, httpx.Client],
) -> None:
    running, client = web
    answer = client.post("/services/collector/event?host=a&index=i&host=b", content=b'{"event":"e"}')
    assert (answer.status_code, answer.json()["code"]) == (400, 6)
    assert "host occurs more than once in the query" in answer.text
    assert client.post("/i/_doc?routing=a&routing=b", content=DOCUMENT).status_code == 201
    assert [row["annotations"]["routing"] for row in running.rows] == ["b"]


def test_default_limits_take_a_bulk_request_of_the_default_size_of_logstash(tmp_path: Path) -> None:
    document = b'{"message":"%b"}\n' % (b"x" * 500_000)
    with requests_to(tmp_path, "http", term_length=64 << 20) as (running, port):
        body = (b'{"create":{}}\n' + document) * 40
        answer = httpx.post(f"http://127.0.0.1:{port}/i/_bulk", content=body, timeout=60)
        assert (answer.status_code, len(running.rows)) == (200, 40), answer.text
        assert answer.json()["errors"] is False
    assert len(document) * 40 > 20_000_000


def test_exporters_whose_address_ends_with_a_slash_are_served(web: tuple[Requests, httpx.Client]) -> None:
    running, client = web
    answer = httpx.post(f"{client.base_url}//v1/logs", content=request(1).SerializeToString())
    assert (answer.status_code, answer.request.url.path, len(running.rows)) == (200, "//v1/logs", 1)


def test_questions_whether_the_listener_works_need_no_token(tmp_path: Path) -> None:
    with requests_to(tmp_path, "http", tokens=["secret"]) as (running, port):
        base = f"http://127.0.0.1:{port}"
        for path in ("/services/collector/health", "/services/collector/health/1.0"):
            answer = httpx.get(base + path, timeout=30)
            assert (answer.status_code, answer.json()["code"]) == (200, 17)
        for path in ("/services/collector/event/1.0", "/services/collector/event", "/services/collector/raw"):
            assert httpx.options(base + path, timeout=30).status_code == 200
        assert httpx.get(f"{base}/ready", timeout=30).status_code == 200
        for path in ("/services/collector/event/1.0", "/loki/api/v1/push", "/"):
            assert httpx.post(base + path, content=b'{"event":1}', timeout=30).status_code == 401
        assert httpx.get(base, timeout=30).status_code == 401
        wait_until(lambda: running.counts["request_refused.token"] == 4)


PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-own"}


def test_pages_of_permitted_origins_may_send(tmp_path: Path) -> None:
    page, foreign = {"origin": "https://app.example"}, {"origin": "https://other.example"}
    settings = {"allow_origins": ["https://app.example"], "tokens": ["secret"]}
    with requests_to(tmp_path, "http", **settings) as (running, port):
        logs = f"http://127.0.0.1:{port}/v1/logs"
        answer = httpx.options(logs, headers={**page, **PREFLIGHT}, timeout=30)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert answer.headers["access-control-allow-headers"] == "content-type,x-own"
        answer = httpx.options(logs, headers={**foreign, **PREFLIGHT}, timeout=30)
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (401, False)
        body, token = request(1).SerializeToString(), {"authorization": "Bearer secret"}
        answer = httpx.post(logs, content=body, headers={**page, **token}, timeout=30)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")
        refused = httpx.post(logs, content=body, headers=page, timeout=30)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://app.example")
        assert "access-control-allow-origin" not in httpx.post(logs, content=body, headers=token, timeout=30).headers
        assert len(running.rows) == 2


def test_no_origin_is_permitted_by_default_and_all_by_a_star(tmp_path: Path) -> None:
    headers = {"origin": "https://app.example", **PREFLIGHT}
    with requests_to(tmp_path / "none", "http") as (_, port):
        assert httpx.options(f"http://127.0.0.1:{port}/v1/logs", headers=headers, timeout=30).status_code == 404
    with requests_to(tmp_path / "all", "http", allow_origins=["*"]) as (_, port):
        answer = httpx.options(f"http://127.0.0.1:{port}/v1/logs", headers=headers, timeout=30)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, "*")


def test_nobody_is_answered_before_the_log_has_it(web: tuple[Requests, httpx.Client]) -> None:
    running, client = web
    running.log_goes_on = False
    answered = threading.Event()
    sender = threading.Thread(target=lambda: (client.post("/", content=DOCUMENT), answered.set()))
    sender.start()
    assert not answered.wait(0.5)
    running.log_goes_on = True
    assert answered.wait(20)
    assert len(running.rows) == 1
    sender.join()


def test_late_log_answers_503_with_retry_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_waits.StoredWaits.__init__, "__defaults__", (0.2, time.monotonic))
    with requests_to(tmp_path, "http") as (running, port):
        running.log_goes_on = False
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/logs", content=request(1).SerializeToString(), timeout=30)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        running.log_goes_on = True
        wait_until(lambda: running.counts["request_refused.late"] == 1)


def test_requests_are_refused_while_the_log_buffer_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_waits.StoredWaits.__init__, "__defaults__", (0.2, time.monotonic))
    with requests_to(tmp_path, "http", 1 << 20, max_line="16KiB", max_body="512KiB") as (running, port):
        running.log_goes_on = False
        body = b"\n".join([b'"' + b"x" * 1000 + b'"'] * 300)
        statuses = [httpx.post(f"http://127.0.0.1:{port}/", content=body, timeout=30).status_code for _ in range(5)]
        assert set(statuses) == {503}
        running.log_goes_on = True
        wait_until(lambda: running.counts["request_refused.busy"])
        assert len(running.rows) == 300 * running.counts["request_refused.late"]
        assert running.counts["policy_drop.log"] == 0
        assert httpx.post(f"http://127.0.0.1:{port}/", content=body, timeout=30).status_code == 200


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("gzip", lambda data: gzip.compress(data[:3], mtime=0) + gzip.compress(data[3:])),
        ("deflate", zlib.compress),
        ("deflate", lambda data: zlib.compress(data)[2:-4]),
        ("zlib", zlib.compress),
        ("zstd", lambda data: pa.compress(data, codec="zstd", asbytes=True)),
        ("lz4", lambda data: pa.compress(data, codec="lz4", asbytes=True)),
        ("snappy", lambda data: pa.compress(data, codec="snappy", asbytes=True)),
        ("snappy", framed_snappy),
        ("x-snappy-framed", framed_snappy),
    ],
)
def test_packed_bodies_are_unpacked(web: tuple[Requests, httpx.Client], encoding: str, pack: object) -> None:
    running, client = web
    assert callable(pack)
    answer = client.post("/", content=pack(DOCUMENT), headers={"content-encoding": encoding})
    assert answer.status_code == 200
    assert [row["payload"] for row in running.rows] == [DOCUMENT]


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason"),
    [
        (gzip.compress(bytes(50 << 20), mtime=0), {"content-encoding": "gzip"}, 413, "oversize"),
        (bytes(2 << 20), {}, 413, "oversize"),
        (gzip.compress(DOCUMENT, mtime=0)[:-6], {"content-encoding": "gzip"}, 400, "encoding"),
        (DOCUMENT, {"content-encoding": "gzip"}, 400, "encoding"),
        (DOCUMENT, {"content-encoding": "br"}, 415, "encoding"),
        (pa.compress(bytes(50 << 20), codec="zstd", asbytes=True), {"content-encoding": "zstd"}, 413, "oversize"),
        (pa.compress(bytes(50 << 20), codec="lz4", asbytes=True), {"content-encoding": "lz4"}, 413, "oversize"),
        (b"\xff\xff\xff\xff\x0f" + bytes(100_000), {"content-encoding": "snappy"}, 413, "oversize"),
        (DOCUMENT, {"content-encoding": "x-snappy-framed"}, 400, "encoding"),
        (b"nope", {}, 400, "syntax"),
    ],
)
def test_bad_request_is_answered_and_counted_and_the_listener_continues(
    web: tuple[Requests, httpx.Client], body: bytes, headers: dict[str, str], status: int, reason: str
) -> None:
    running, client = web
    try:
        assert client.post("/", content=body, headers=headers).status_code == status
    except httpx.WriteError:
        assert len(body) > 1 << 20  # it was told before it had sent all
    wait_until(lambda: running.counts[f"request_refused.{reason}"] == 1)
    assert client.post("/", content=DOCUMENT).status_code == 200
    assert len(running.rows) == 1


def test_a_body_in_chunks_that_becomes_too_large_is_refused(web: tuple[Requests, httpx.Client]) -> None:
    running, client = web
    with contextlib.suppress(httpx.WriteError):  # it was told before it had sent all
        assert client.post("/", content=iter([bytes(300_000)] * 20)).status_code == 413
    wait_until(lambda: running.counts["request_refused.oversize"] == 1)


def test_refused_large_request_names_size_limit_and_key(web: tuple[Requests, httpx.Client]) -> None:
    _, client = web
    body, limit = bytes((1 << 20) + 1), f"larger than max_body ({1 << 20} bytes)"
    assert f"a request of {len(body)} bytes is {limit}" in client.post("/", content=body).text
    with contextlib.suppress(httpx.WriteError):  # it was told before it had sent all
        assert f"bytes or more is {limit}" in client.post("/", content=iter([body])).text
    compressed = gzip.compress(body, mtime=0)
    assert limit in client.post("/", content=compressed, headers={"content-encoding": "gzip"}).text


def test_requests_to_unknown_paths_are_counted(web: tuple[Requests, httpx.Client]) -> None:
    running, client = web
    unknown = client.post("/elsewhere", content=DOCUMENT)
    assert (unknown.status_code, "messages come by POST (known: /, /v1/logs, " in unknown.text) == (404, True)
    assert "messages come by POST (did you mean '/v1/logs'?)" in client.post("/v1/log", content=DOCUMENT).text
    assert "messages come by POST (did you mean '/v1/logs'?)" in client.get("/v1/logs").text
    wait_until(lambda: running.counts["request_refused.path"] == 3)


def test_each_protocol_sends_tokens_in_its_own_form(tmp_path: Path) -> None:
    with requests_to(tmp_path, "http", tokens=["secret", "other"]) as (running, port):
        url = f"http://127.0.0.1:{port}"
        basic = base64.b64encode(b"user:secret").decode()
        for headers in ("Bearer secret", "Splunk other", f"Basic {basic}", f"ApiKey {basic}", "ApiKey secret"):
            assert httpx.post(url, content=DOCUMENT, headers={"authorization": headers}).status_code == 200
        assert httpx.post(f"{url}/?token=secret", content=DOCUMENT).status_code == 200
        event = f"{url}/services/collector/event"
        missing = httpx.post(event, content=b'{"event":1}')
        wrong = httpx.post(event, content=b'{"event":1}', headers={"authorization": "Splunk nope"})
        assert [(each.status_code, each.json()["code"]) for each in (missing, wrong)] == [(401, 2), (403, 4)]
        wait_until(lambda: running.counts["request_refused.token"] == 2)
        assert len(running.rows) == 6


def test_networks_that_are_not_allowed_get_no_connection(tmp_path: Path) -> None:
    with requests_to(tmp_path, "http", allow_from=["10.0.0.0/8"]) as (running, port):
        with pytest.raises(httpx.TransportError):
            httpx.post(f"http://127.0.0.1:{port}/", content=DOCUMENT)
        wait_until(lambda: running.counts["request_refused.network"])
        assert running.rows == []


def test_with_tls_the_names_of_certificates_decide_and_are_annotations(tmp_path: Path) -> None:
    made = {name: certificates.make(tmp_path, name) for name in ("server", "ca")}
    made |= {name: certificates.make(tmp_path, name, issuer=made["ca"]) for name in ("a.example.com", "b.other.org")}
    server = made["server"]
    tls = {"tls_cert": server.cert, "tls_key": server.key, "client_ca": made["ca"].cert}
    with requests_to(tmp_path / "life", "http", client_names=["*.example.com"], **tls) as (running, port):
        for name, lets_in in (("a.example.com", True), ("b.other.org", False)):
            context = ssl.create_default_context(cafile=str(server.cert))
            context.check_hostname = False
            context.load_cert_chain(made[name].cert, made[name].key)
            if lets_in:
                assert httpx.post(f"https://127.0.0.1:{port}/", content=DOCUMENT, verify=context).status_code == 200
            else:
                with pytest.raises(httpx.TransportError):
                    httpx.post(f"https://127.0.0.1:{port}/", content=DOCUMENT, verify=context)
        assert [row["annotations"] for row in running.rows] == [{"certificate_name": "a.example.com"}]
        wait_until(lambda: running.counts["request_refused.name"])


def test_connections_without_a_tls_handshake_are_counted(tmp_path: Path) -> None:
    server = certificates.make(tmp_path, "server")
    tls = {"tls_cert": server.cert, "tls_key": server.key}
    with requests_to(tmp_path / "life", "http", **tls) as (running, port):
        with pytest.raises(httpx.TransportError):
            httpx.post(f"http://127.0.0.1:{port}/", content=DOCUMENT)
        with pytest.raises(httpx.TransportError):
            httpx.post(f"https://127.0.0.1:{port}/", content=DOCUMENT)  # does not trust the certificate
        wait_until(lambda: running.counts["request_refused.tls"] == 2)
        assert httpx.post(f"https://127.0.0.1:{port}/", content=DOCUMENT, verify=False).status_code == 200
        with socket.create_connection(("127.0.0.1", port), 20):
            pass  # a check whether the port is open
        assert httpx.post(f"https://127.0.0.1:{port}/", content=DOCUMENT, verify=False).status_code == 200
        assert (len(running.rows), running.counts["request_refused.tls"]) == (2, 2)


def test_client_that_stops_in_the_middle_is_disconnected(tmp_path: Path) -> None:
    with requests_to(tmp_path, "http", request_timeout="0.3s") as (running, port):
        for started in (b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"):
            with socket.create_connection(("127.0.0.1", port), 20) as slow:
                slow.sendall(started)
                while slow.recv(1000):
                    pass
        assert httpx.post(f"http://127.0.0.1:{port}/", content=DOCUMENT).status_code == 200
        assert len(running.rows) == 1


def test_requests_that_do_not_arrive_or_are_not_http_are_counted_once_each(tmp_path: Path) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\n"
    incomplete = [head + b"Content-Length: 9\r\n\r\n" + DOCUMENT, head + b"Transfer-Encoding: chunked\r\n\r\n7\r\n{"]
    invalid = [head + b"Content-Length: +7\r\n\r\n" + DOCUMENT, b"POST / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n\r\n"]
    bad_chunk = head + b"Transfer-Encoding: chunked\r\n\r\nx\r\n"
    with requests_to(tmp_path, "http") as (running, port):
        for data in (*incomplete, *invalid, bad_chunk):
            with socket.create_connection(("127.0.0.1", port), 20) as client:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                answer = client.recv(1000)
                assert answer.startswith(b"HTTP/1.1 400 " if data not in incomplete else b"")
        expected = {"request_refused.syntax": len(invalid), "request_refused.incomplete": len(incomplete) + 1}
        wait_until(lambda: {name: running.counts[name] for name in expected} == expected)
        assert httpx.post(f"http://127.0.0.1:{port}/", content=DOCUMENT).status_code == 200
        assert running.counts["accepted"] == len(running.rows) == 1


@pytest.mark.parametrize("requests", [1, 3])
def test_client_that_ends_its_side_behind_its_requests_gets_all_answers(tmp_path: Path, requests: int) -> None:
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(DOCUMENT), DOCUMENT)
    with requests_to(tmp_path, "http") as (running, port):
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            client.sendall(requests * request)
            client.shutdown(socket.SHUT_WR)
            answers = b"".join(iter(lambda: client.recv(10_000), b""))
        assert answers.count(b"HTTP/1.1 200 ") == requests
        assert len(running.rows) == requests


def test_large_request_whose_client_has_left_is_not_parsed(tmp_path: Path) -> None:
    """A sender that gives up and repeats its request must not double the work of a receiver that is late."""
    body = DOCUMENT + b"\n" + DOCUMENT * 10_000
    with requests_to(tmp_path, "http") as (running, port):
        assert isinstance(running.receiver, HttpReceiver)
        earlier = threading.Event()
        running.receiver._large.submit(earlier.wait)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"http://127.0.0.1:{port}/", content=body, timeout=httpx.Timeout(30, read=0.3))
        wait_until(lambda: running.counts["request_refused.left"] == 1)
        earlier.set()
        assert httpx.post(f"http://127.0.0.1:{port}/", content=body, timeout=60).status_code == 200
        assert len(running.rows) == 10_001


def test_many_requests_at_once_share_frames(web: tuple[Requests, httpx.Client]) -> None:
    running, client = web
    threads = [threading.Thread(target=lambda: client.post("/", content=DOCUMENT * 1)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(running.rows) == 40


def test_a_request_that_one_frame_cannot_hold_is_split_and_its_counts_are_whole(
    web: tuple[Requests, httpx.Client],
) -> None:
    running, client = web
    lines = [b'{"n":%d}' % n for n in range(100_000)]
    answer = client.post("/", content=gzip.compress(b"\n".join([*lines, b"no"])), headers={"content-encoding": "gzip"})
    if answer.status_code == 413:
        lines = lines[:80_000]
        answer = client.post("/", content=b"\n".join([*lines, b"no"]))
    assert answer.json()["refused"] == 1
    assert [row["payload"] for row in running.rows] == lines
    assert running.counts["accepted"] == len(lines)
    assert running.counts["seen"] == len(lines) + 1


def test_gzip_that_is_named_twice_is_decompressed_as_often_as_the_body_was_compressed(tmp_path: Path) -> None:
    once, twice = gzip.compress(DOCUMENT), gzip.compress(gzip.compress(DOCUMENT))
    lines, listed = [("content-encoding", "gzip")] * 2, [("Content-Encoding", "x-gzip, GZIP")]
    with requests_to(tmp_path, "http") as (running, port):
        for headers in (lines, listed):
            for body in (once, twice):
                answer = httpx.post(f"http://127.0.0.1:{port}/", content=body, headers=headers, timeout=30)
                assert answer.status_code == 200, answer.text
        assert [row["payload"] for row in running.rows] == [DOCUMENT] * 4


@pytest.mark.parametrize("empty_lines", [b"\r\n", b"\n", b"\r\n" * 40_000])
def test_empty_lines_between_requests_are_skipped(tmp_path: Path, empty_lines: bytes) -> None:
    request_bytes = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 7\r\n\r\n" + DOCUMENT
    last = request_bytes.replace(b"host", b"connection: close\r\nhost")
    with requests_to(tmp_path, "http") as (running, port), socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.sendall(empty_lines + request_bytes + empty_lines + request_bytes + b"\r")
        time.sleep(0.1)
        sock.sendall(b"\n" + last)
        answers = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answers.count(b"HTTP/1.1 200") == answers.count(b"HTTP/1.1") == 3
    assert [row["payload"] for row in running.rows] == [DOCUMENT] * 3


def test_request_without_a_length_or_body_is_refused(web: tuple[Requests, httpx.Client]) -> None:
    _, client = web
    with socket.create_connection((client.base_url.host, client.base_url.port), 30) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 400")


def test_request_that_meets_the_end_of_the_receiver_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "LAST_REQUEST_S", 5.0)
    ready = b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n"
    with requests_to(tmp_path, "http") as (running, port), socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.sendall(ready)
        assert b"200 OK" in sock.recv(1000)
        running._ends = True
        (connection,) = running.receiver._server.server_state.connections
        wait_until(lambda: connection._is_ending, 10)
        sock.sendall(ready)
        answer = b"".join(iter(lambda: sock.recv(1000), b""))
    assert b"200 OK" in answer
    assert b"connection: close" in answer


def test_connection_that_was_silent_before_the_end_does_not_delay_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_connection, "LAST_REQUEST_S", 30.0)
    with requests_to(tmp_path, "http") as (running, port), socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.sendall(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"200 OK" in sock.recv(1000)
        (connection,) = running.receiver._server.server_state.connections
        wait_until(lambda: connection.timeout_keep_alive_task, 10)
        connection._last_active -= 30
        running._ends = True
        running.thread.join(30)
    assert "timeout graceful shutdown exceeded" not in caplog.text


def test_head_that_never_ends_does_not_delay_the_end_of_the_receiver(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with requests_to(tmp_path, "http") as (running, port), socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.sendall(b"GET / HT")
        connections = running.receiver._server.server_state.connections
        wait_until(lambda: any(connection._unparsed for connection in connections), 10)
        running._ends = True
        running.thread.join(30)
    assert "timeout graceful shutdown exceeded" not in caplog.text


def test_rest_of_a_refused_request_is_no_second_refusal(tmp_path: Path) -> None:
    chunked = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    with requests_to(tmp_path, "http", tokens=["secret"]) as (running, port):
        with socket.create_connection(("127.0.0.1", port), 30) as sock:
            sock.sendall(chunked)
            assert sock.recv(1000).startswith(b"HTTP/1.1 401")
            sock.sendall(b"no chunk\r\n")
            assert b"".join(iter(lambda: sock.recv(1000), b"")).count(b"HTTP/1.1") == 0
        wait_until(lambda: running.counts["request_refused.token"] == 1)
        assert running.counts["request_refused.syntax"] == 0

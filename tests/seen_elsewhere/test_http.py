"""Public reports on HTTP servers: the bytes of a connection, the statuses of its answers, and what is stored."""

from __future__ import annotations

import gzip
import re
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from tests.ingest.requests_life import Requests, requests_to

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
EXPECT = HEAD + b"Expect: 100-continue\r\n"
A, B = b'{"a":1}', b'{"b":2}'
CHUNKED_A = b"7\r\n" + A + b"\r\n0\r\n\r\n"


class Report(NamedTuple):
    """``parts``: each is sent when the server has answered something to the one before it."""

    reference: str
    parts: list[bytes]
    statuses: list[int]
    stored: list[bytes]


def post(body: bytes, head: bytes = HEAD, *encodings: bytes) -> bytes:
    lines = b"".join(b"Content-Encoding: %b\r\n" % encoding for encoding in encodings)
    return head + lines + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def padding(size: int) -> bytes:
    return b'{"x":"%b"}' % (b"y" * size)


REPORTS = [
    Report(
        "apache/trafficserver#11461, litespeedtech/openlitespeed#402 (a request behind a chunked one)",
        [CHUNKED + CHUNKED_A + post(B) + post(A)],
        [200, 200, 200],
        [A, B, A],
    ),
    Report(
        "miyagawa/Starman#43 (requests behind refused ones)",
        [post(b"{") + post(A) + post(A, b"POST /no HTTP/1.1\r\nHost: a\r\n") + post(padding(1 << 20)) + post(B)],
        [400, 200, 404, 413, 200],
        [A, B],
    ),
    Report(
        "Graylog2/graylog2-server#1939 (202 before the body)",
        [EXPECT + b"Content-Length: 7\r\n\r\n", A],
        [100, 200],
        [A],
    ),
    Report(
        "ballerina-platform/ballerina-lang#10245 (a sender that does not wait for 100)",
        [EXPECT + b"Content-Length: 7\r\n\r\n" + A + post(B)],
        [100, 200, 200],
        [A, B],
    ),
    Report("lalinsky/dusty#163 (no body is read)", [EXPECT + b"Content-Length: 9999999\r\n\r\n"], [413], []),
    Report("graygnuorg/pound#28 (a bad chunk)", [CHUNKED + b"1\r0\n\r\n"], [400], []),
    Report(
        "pgjones/hypercorn#279, python-hyper/h11#90 (both lengths: RFC 9112 (6.1) lets a server refuse them, as nginx)",
        [HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED_A + post(B)],
        [400],
        [],
    ),
    Report(
        "mopemope/meinheld#111, cherrypy/cheroot#275 (two lengths)",
        [HEAD + b"Content-Length: 14\r\nContent-Length: 7\r\n\r\n" + A + B],
        [400],
        [],
    ),
    Report(
        "Kludex/uvicorn#3097, benoitc/gunicorn#3370 (the address in the request line)",
        [
            post(A, b"POST http://logs.example.com HTTP/1.1\r\nHost: a\r\n")
            + post(b'{"event":"e"}', b"POST HTTP://a:1/services/collector HTTP/1.1\r\nHost: a\r\n")
        ],
        [200, 200],
        [A, b"e"],
    ),
    Report(
        "curl/curl#22156, oven-sh/bun#33708 (only the first member of a gzip)",
        [post(gzip.compress(A + b'\n{"b"') + gzip.compress(b":2}"), HEAD, b"gzip")],
        [200],
        [A, B],
    ),
    Report(
        "nodejs/node#64748, oven-sh/bun#36021 (only the first frame of zstd)",
        [post(zstd(A + b"\n") + zstd(B), HEAD, b"zstd")],
        [200],
        [A, B],
    ),
    Report(
        "wojtekmach/req#191 (several headers name one encoding each)",
        [post(gzip.compress(zstd(A)), HEAD, b"zstd", b"identity", b"GZIP")],
        [200],
        [A],
    ),
    Report(
        "Orange-OpenSource/hurl#40, stream-utils/inflation#3 (one header names several encodings)",
        [post(gzip.compress(gzip.compress(A)), HEAD, b"gzip , gzip")],
        [200],
        [A],
    ),
    Report(
        "vectordotdev/vector#7375 (gzip in chunks)",
        [
            HEAD
            + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"".join(b"1\r\n%c\r\n" % octet for octet in gzip.compress(A))
            + b"0\r\n\r\n"
            + post(B)
        ],
        [200, 200],
        [A, B],
    ),
    Report(
        "fluent/fluent-bit#7667, #3049 (gzip without its header is not stored as text)",
        [post(gzip.compress(A)) + post(B)],
        [400, 200],
        [B],
    ),
    Report(
        "fluent/fluentd#2060, elastic/beats#31061 (deflate with zlib's header and without, x-gzip)",
        [
            post(zlib.compress(A), HEAD, b"deflate")
            + post(zlib.compress(B, wbits=-15), HEAD, b"deflate")
            + post(gzip.compress(A), HEAD, b"x-gzip")
        ],
        [200, 200, 200],
        [A, B, A],
    ),
    Report(
        "fluent/fluent-bit-docs#547 (a character set behind the type)",
        [post(A, HEAD + b"content-type: application/json; charset=utf-8\r\n")],
        [200],
        [A],
    ),
    Report("more than two encodings", [post(A, HEAD, b"gzip, gzip, gzip") + post(B)], [415, 200], [B]),
]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Requests, int]]:
    folder: Path = tmp_path_factory.mktemp("web")
    with requests_to(folder, "http", max_line="64KiB", max_body="1MiB") as running:
        yield running


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.reference)
def test_connection_gets_the_answers_and_only_accepted_requests_are_stored(
    report: Report, web: tuple[Requests, int]
) -> None:
    running, port = web
    before, answers = len(running.rows), b""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        for number, part in enumerate(report.parts, 1):
            sock.sendall(part)
            expected = len(report.statuses) if number == len(report.parts) else number
            while answers.count(b"HTTP/1.1 ") < expected or not answers.endswith((b"}", b"\r\n\r\n")):
                if not (part := sock.recv(1 << 16)):
                    break  # the server closes behind a request that is not HTTP
                answers += part
    assert [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", answers)] == report.statuses
    assert [row["payload"] for row in running.rows[before:]] == report.stored

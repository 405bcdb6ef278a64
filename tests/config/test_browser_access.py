"""Admission of hosts and origins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.browser_access import CONSOLE_POLICY, BrowserAccess, SecurityHeaders, refusal

NAMES = frozenset({"penstock.example.org"})


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8844", None),
        ("[::1]:8844", None),
        ("localhost", None),
        ("LOCALHOST:8844", "http://localhost:8844"),
        ("shop.localhost:1", None),
        ("10.0.0.7:8844", "http://10.0.0.7:8844"),
        ("[::1]:8844", "http://[::1]:8844"),
        ("penstock.example.org", "https://penstock.example.org"),
        ("127.0.0.1:8844", "https://penstock.example.org"),
        ("", None),
    ],
)
def test_own_pages_and_programs_are_admitted(host: str, origin: str | None) -> None:
    assert refusal(host, origin, NAMES) == ""


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8844", "127.0.0.1.evil.example", "localhost.evil.example", "x@127.0.0.1"]
)
def test_foreign_host_name_is_refused(host: str) -> None:
    assert "is unknown" in refusal(host, None, NAMES)
    assert refusal(host, None, {"*"}) == ""


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://localhost:9999", "http://localhost"])
def test_foreign_origin_is_refused(origin: str) -> None:
    assert "may not send requests here" in refusal("localhost:8844", origin, NAMES)
    assert "may not send requests here" in refusal("localhost:8844", origin, {"*"})


def test_foreign_websocket_is_closed_before_it_opens() -> None:
    sent: list[Any] = []

    async def application(*_: Any) -> None:
        sent.append("served")

    async def send(message: Any) -> None:
        sent.append(message)

    async def send_request(kind: str, host: bytes) -> None:
        await BrowserAccess(application, ["a"])({"type": kind, "headers": [(b"host", host)]}, send, send)  # type: ignore[arg-type]

    asyncio.run(send_request("websocket", b"evil.example"))
    assert sent.pop() == {"type": "websocket.close", "code": 1008}
    asyncio.run(send_request("websocket", b"localhost"))
    asyncio.run(send_request("lifespan", b"evil.example"))
    assert sent == ["served", "served"]


LATIN = st.text(st.characters(max_codepoint=255), max_size=30)


@given(LATIN, st.none() | LATIN | LATIN.map("http://{}".format) | st.just("http://["))
def test_arbitrary_headers_are_admitted_or_refused(host: str, origin: str | None) -> None:
    why = refusal(host, origin, NAMES)
    assert why == "" or "is unknown" in why or "may not send" in why


def test_responses_cannot_be_framed_and_keep_their_other_headers() -> None:
    sent: list[Any] = []

    async def application(_: Any, __: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/html"), (b"X-Frame-Options", b"SAMEORIGIN")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"page"})

    async def collect(message: Any) -> None:
        sent.append(message)

    app = SecurityHeaders(application, CONSOLE_POLICY)
    asyncio.run(app({"type": "http", "headers": []}, collect, collect))  # type: ignore[arg-type]
    headers = dict(sent[0]["headers"])
    assert len(headers) == len(sent[0]["headers"]) == 5
    assert headers[b"content-type"] == b"text/html"
    assert headers[b"x-frame-options"] == b"DENY"
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert sent[1] == {"type": "http.response.body", "body": b"page"}

"""Request bodies with any content."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from penstock.server.http.request_bodies import RequestBodies, json_object
from penstock.slogd.errors import ApiError, TooLong, UnknownEncoding
from penstock.wire.unpacking import PART_BYTES
from tests.fuzzed import json_texts

LIMIT = 1000
ENCODINGS = [b"", b"identity", b"gzip", b"x-gzip", b"GZip ", b"br", b"\xff"]


def read(data: bytes, encoding: bytes = b"", size: int = LIMIT) -> dict[str, Any]:
    """Return what a route reads of a body that arrives ``size`` bytes at a time. Raises ApiError."""
    parts = [data[begin : begin + size] for begin in range(0, len(data), size)] or [b""]
    coming = iter([{"body": part, "more_body": number < len(parts)} for number, part in enumerate(parts, 1)])
    messages: list[dict[str, Any]] = []

    async def receive() -> Message:
        return {"type": "http.request", **next(coming)}

    async def send(_: Message) -> None:
        """Nothing is answered here."""

    async def app(scope: Scope, receive: Receive, _: Send) -> None:
        messages.append(await json_object(Request(scope, receive)))

    scope = {"type": "http", "method": "POST", "headers": [(b"content-encoding", encoding)]}
    asyncio.run(RequestBodies(app, lambda: LIMIT)(scope, receive, send))
    return messages[0]


@given(json_texts("topic", "logs"), st.sampled_from(ENCODINGS), st.integers(1, LIMIT))
def test_any_body_is_an_object_or_an_api_error(data: bytes, encoding: bytes, size: int) -> None:
    with contextlib.suppress(ApiError):
        assert isinstance(read(data, encoding, max(size, len(data) // 20)), dict)


@given(st.text(max_size=100), st.integers(1, 50), st.integers(0, 60))
def test_compressed_body_is_decompressed_in_any_split(text: str, size: int, split: int) -> None:
    plain = json.dumps({"a": text}).encode()
    packed = gzip.compress(plain[:split]) + gzip.compress(plain[split:])
    assert read(packed, b"gzip", size) == {"a": text}


def test_body_that_is_compressed_twice_is_refused() -> None:
    with pytest.raises(UnknownEncoding, match="gzip,gzip"):
        read(gzip.compress(gzip.compress(b"{}")), b"gzip, gzip")


@pytest.mark.parametrize("size", [1, 1000])
def test_body_that_is_compressed_once_may_name_gzip_twice(size: int) -> None:
    assert read(gzip.compress(b'{"a":1}'), b"identity,gzip, x-gzip", size) == {"a": 1}


def test_decompression_bomb_is_refused() -> None:
    with pytest.raises(TooLong):
        read(gzip.compress(b" " * 10_000_000), b"gzip")


def test_large_compressed_body_lets_other_tasks_run() -> None:
    text = json.dumps({"a": "x" * (40 << 20)}).encode()
    packed, turns, sizes = gzip.compress(text), 0, list[int]()

    async def receive() -> Message:
        return {"type": "http.request", "body": packed, "more_body": False}

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        nonlocal turns

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other_turns = asyncio.ensure_future(count_turns())
        sizes.append(len((await receive())["body"]))
        other_turns.cancel()

    async def send(_: Message) -> None:
        """Nothing is answered here."""

    scope = {"type": "http", "method": "POST", "headers": [(b"content-encoding", b"gzip")]}
    asyncio.run(RequestBodies(app, lambda: 64 << 20)(scope, receive, send))
    assert sizes == [len(text)]
    assert turns >= len(text) // PART_BYTES

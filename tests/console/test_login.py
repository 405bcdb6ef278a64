"""Sessions of the console: how they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console import login
from penstock.console.login import LASTS, LoggedIn, Sessions
from penstock.testing import FakeClock
from tests.fuzzed import RAW


def test_a_session_ends_by_itself_and_when_it_is_ended() -> None:
    clock = FakeClock()
    sessions = Sessions(clock.monotonic)
    one, other = sessions.begin("a token"), sessions.begin("another")
    assert (sessions.token(one), sessions.token(other), sessions.token("guessed")) == ("a token", "another", "")
    sessions.end(other)
    assert (sessions.token(one), sessions.token(other)) == ("a token", "")
    clock.advance(LASTS + 1)
    assert sessions.token(one) == ""


class Asked:
    """A daemon that knows one token no more."""

    def __init__(self, token: str = "") -> None:
        self._token = token

    def seen_by(self, token: str) -> Asked:
        return Asked(token)

    async def refuses(self) -> str:
        return "not known" if self._token == "taken away" else ""


def test_a_token_that_is_taken_away_ends_its_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "RECHECK", 0)

    async def run() -> tuple[str, str]:
        sessions = Sessions()
        kept, ended = sessions.begin("good"), sessions.begin("taken away")
        keeping = asyncio.create_task(sessions.keep(Asked()))  # type: ignore[arg-type]
        while sessions.token(ended):
            await asyncio.sleep(0)
        keeping.cancel()
        return sessions.token(kept), sessions.token(ended)

    assert asyncio.run(run()) == ("good", "")


def test_an_open_page_is_told_no_more_once_its_session_has_ended() -> None:
    sessions, sent = Sessions(), []
    number = sessions.begin("a token")

    async def page(_: Any, __: Any, send: Any) -> None:
        await send({"type": "websocket.send", "text": "first"})
        sessions.end(number)
        await send({"type": "websocket.send", "text": "second"})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": "/_nicegui_ws/",
        "headers": [(b"cookie", f"{login.COOKIE}={number}".encode())],
    }
    asyncio.run(LoggedIn(page, sessions)(scope, send, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.send", "text": "first"}, {"type": "websocket.close", "code": 1008}]


@given(RAW | st.binary(max_size=20).map(b"penstock=".__add__))
def test_any_cookie_is_a_session_or_none(data: bytes) -> None:
    number = login._number({"type": "http", "headers": [(b"cookie", data)]})
    assert type(number) is str
    assert Sessions(FakeClock().monotonic).token(number) == ""


@given(RAW | st.binary(max_size=30).map(b"token=".__add__))
def test_any_form_is_a_token_that_a_header_can_carry_or_none(data: bytes) -> None:
    token = login._token(data)
    assert token.isascii()
    assert token.isprintable()

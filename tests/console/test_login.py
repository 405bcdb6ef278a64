"""Sessions of the console and their end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console import login
from penstock.console.login import SESSION_S, LoggedIn, Sessions
from penstock.console.people import Person
from penstock.testing import FakeClock
from tests.fuzzed import RAW


def test_session_ends_by_time_and_by_logout() -> None:
    clock = FakeClock()
    sessions = Sessions(clock.monotonic)
    first, second = sessions.begin("a token"), sessions.begin("another")
    assert (sessions.token(first), sessions.token(second), sessions.token("guessed")) == ("a token", "another", "")
    sessions.end(second)
    assert (sessions.token(first), sessions.token(second)) == ("a token", "")
    clock.advance(SESSION_S + 1)
    assert sessions.token(first) == ""


class DaemonWithTokens:
    """A daemon that has revoked one token."""

    def __init__(self, token: str = "") -> None:
        self._token = token

    def for_person(self, person: Person) -> DaemonWithTokens:
        return DaemonWithTokens(person.token)

    async def token_error(self) -> str:
        return "not known" if self._token == "taken away" else ""


def test_revoked_token_ends_its_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "TOKEN_CHECK_INTERVAL_S", 0)

    async def run() -> tuple[str, str]:
        sessions = Sessions()
        valid, revoked = sessions.begin("good"), sessions.begin("taken away")
        checker = asyncio.create_task(sessions.end_revoked_sessions(DaemonWithTokens()))  # type: ignore[arg-type]
        while sessions.token(revoked):
            await asyncio.sleep(0)
        checker.cancel()
        return sessions.token(valid), sessions.token(revoked)

    assert asyncio.run(run()) == ("good", "")


def test_open_page_receives_nothing_after_its_session_ends() -> None:
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
def test_any_cookie_is_parsed(data: bytes) -> None:
    number = login._session_number({"type": "http", "headers": [(b"cookie", data)]})
    assert type(number) is str
    assert Sessions(FakeClock().monotonic).token(number) == ""


@given(RAW | st.binary(max_size=30).map(b"token=".__add__))
def test_any_form_yields_a_token_that_fits_a_header(data: bytes) -> None:
    token = login._parse_token(data)
    assert token.isascii()
    assert token.isprintable()

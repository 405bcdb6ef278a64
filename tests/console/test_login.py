"""Sessions of the console and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.config.keys.console import ConsoleConfig
from penstock.console import login
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.login import (
    IS_CURRENT,
    PERSON,
    SESSION_S,
    LoggedIn,
    Refused,
    Sessions,
    TrustedProxy,
    UsersFile,
)
from penstock.console.people import Person, ReadOnly, Role
from penstock.console.users import NO_PASSWORD, User, write_users
from penstock.testing import FakeClock
from tests.fuzzed import RAW


def person_with(token: str) -> Person:
    return Person(token=token)


NO_PROXY = TrustedProxy(b"", (), Role.VIEWER)


def test_session_ends_by_time_and_by_logout() -> None:
    clock = FakeClock()
    sessions = Sessions(clock.monotonic)
    first, second = sessions.begin(person_with("a token")), sessions.begin(person_with("another"))
    assert (sessions.person(first), sessions.person(second)) == (person_with("a token"), person_with("another"))
    assert sessions.person("guessed") is None
    sessions.end(second)
    assert (sessions.person(first), sessions.person(second)) == (person_with("a token"), None)
    clock.advance(SESSION_S + 1)
    assert sessions.person(first) is None


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

    async def run() -> tuple[Person | None, Person | None]:
        sessions = Sessions()
        valid, revoked = sessions.begin(person_with("good")), sessions.begin(person_with("taken away"))
        checker = asyncio.create_task(sessions.end_revoked_sessions(DaemonWithTokens()))  # type: ignore[arg-type]
        while sessions.person(revoked):
            await asyncio.sleep(0)
        checker.cancel()
        return sessions.person(valid), sessions.person(revoked)

    assert asyncio.run(run()) == (person_with("good"), None)


def test_open_page_receives_nothing_after_its_session_ends() -> None:
    sessions, sent = Sessions(), []
    number = sessions.begin(person_with("a token"))

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
    asyncio.run(LoggedIn(page, sessions, NO_PROXY)(scope, send, send))  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.send", "text": "first"}, {"type": "websocket.close", "code": 1008}]


@given(RAW | st.binary(max_size=20).map(b"penstock=".__add__))
def test_any_cookie_is_parsed(data: bytes) -> None:
    number = login._session_number({"type": "http", "headers": [(b"cookie", data)]})
    assert type(number) is str
    assert Sessions(FakeClock().monotonic).person(number) is None


@given(RAW | st.binary(max_size=30).map(b"token=".__add__))
def test_any_form_yields_a_token_that_fits_a_header(data: bytes) -> None:
    token = login._printable(login._parse_form(data).get("token", ""))
    assert token.isascii()
    assert token.isprintable()


def request_from(address: str, *headers: tuple[str, str]) -> dict[str, Any]:
    names = [(name.lower().encode(), text.encode()) for name, text in headers]
    return {"type": "http", "method": "GET", "path": "/", "client": (address, 1), "headers": names}


def proxy_of(tmp_path: Path, role: str) -> TrustedProxy:
    write_users(tmp_path / "users", [User("ann", Role.OPERATOR, NO_PASSWORD)])
    config = ConsoleConfig(
        trusted_user_header="X-Forwarded-Email",
        trusted_proxies=("127.0.0.1", "10.1.0.0/24"),
        trusted_user_role=role,  # type: ignore[arg-type]
    )
    return TrustedProxy.from_config(config, UsersFile(tmp_path / "users"))


def test_proxy_names_the_user_whose_role_is_in_the_file(tmp_path: Path) -> None:
    proxy = proxy_of(tmp_path, "viewer")
    scope = request_from("10.1.0.9", ("x-forwarded-email", "ann"), ("x-forwarded-for", "1.2.3.4, 192.168.0.5"))
    assert proxy.person(scope) == Person("ann", Role.OPERATOR, "192.168.0.5 by 10.1.0.9")
    stranger = proxy.person(request_from("127.0.0.1", ("X-Forwarded-Email", "bob@example.org")))
    assert stranger == Person("bob@example.org", Role.VIEWER, "127.0.0.1")
    assert proxy.person(request_from("127.0.0.1")) is None
    write_users(tmp_path / "users", [User("ann", Role.VIEWER, NO_PASSWORD), User("eve", Role.VIEWER, NO_PASSWORD)])
    assert proxy.person(scope) == Person("ann", Role.VIEWER, "192.168.0.5 by 10.1.0.9"), "the file is read again"


@pytest.mark.parametrize(
    ("address", "headers", "reason"),
    [
        ("10.1.1.9", [("X-Forwarded-Email", "ann")], "accepted from console.trusted_proxies only"),
        ("10.1.1.9", [("X-Forwarded-Email", "ann"), ("X-Forwarded-For", "127.0.0.1")], "trusted_proxies only"),
        ("not an address", [("X-Forwarded-Email", "ann")], "trusted_proxies only"),
        ("127.0.0.1", [("X-Forwarded-Email", "ann"), ("X-Forwarded-Email", "bob")], "names no user"),
        ("127.0.0.1", [("X-Forwarded-Email", "")], "names no user"),
        ("127.0.0.1", [("X-Forwarded-Email", "ann smith")], "names no user"),
        ("127.0.0.1", [("X-Forwarded-Email", "bob")], "bob is not a user of this console"),
    ],
)
def test_header_of_others_and_without_a_user_is_refused(
    tmp_path: Path, address: str, headers: list[tuple[str, str]], reason: str
) -> None:
    proxy, answers = proxy_of(tmp_path, "none"), []

    async def page(*_: Any) -> None:
        raise AssertionError("the page must not be reached")

    async def send(message: Any) -> None:
        answers.append(message)

    scope = request_from(address, *headers)
    asyncio.run(LoggedIn(page, Sessions(), proxy)(scope, send, send))  # type: ignore[arg-type]
    assert answers[0]["status"] == 403
    assert reason in answers[1]["body"].decode()


def test_session_of_a_changed_user_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "TOKEN_CHECK_INTERVAL_S", 0)
    ann, bob = (User(name, Role.OPERATOR, NO_PASSWORD) for name in ("ann", "bob"))
    write_users(tmp_path / "users", [ann, bob])

    async def run() -> tuple[Person | None, Person | None]:
        sessions, users = Sessions(), UsersFile(tmp_path / "users")
        numbers = [sessions.begin(Person(user.name, user.role), user.line) for user in (ann, bob)]
        checker = asyncio.create_task(sessions.end_revoked_sessions(DaemonWithTokens(), users))  # type: ignore[arg-type]
        write_users(tmp_path / "users", [ann, User("bob", Role.VIEWER, NO_PASSWORD)])
        while sessions.person(numbers[1]):
            await asyncio.sleep(0)
        checker.cancel()
        return sessions.person(numbers[0]), sessions.person(numbers[1])

    assert asyncio.run(run()) == (Person("ann", Role.OPERATOR), None)


def test_viewer_changes_nothing() -> None:
    daemon = Daemon("http://127.0.0.1:1").for_person(Person("bob", Role.VIEWER))
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        with pytest.raises(ReadOnly, match="bob is a viewer"):
            asyncio.run(daemon.request(method, "/topic/t/logs"))


def opened_page(middleware: Callable[[ASGIApp], LoggedIn], scope: Scope) -> Scope:
    """Return the scope that a page gets for a request."""
    scopes: list[Scope] = []

    async def page(scope: Scope, _: Receive, __: Send) -> None:
        scopes.append(scope)

    async def unused(*_: Any) -> Any:
        raise AssertionError("the request must reach the page")

    asyncio.run(middleware(page)(scope, unused, unused))
    return scopes[0]


def check_page_has_ended(page: Scope) -> None:
    daemon = Daemon("http://127.0.0.1:1").for_person(page[PERSON], page[IS_CURRENT])
    with pytest.raises(ReadOnly, match="your login has ended or changed: load the page again"):
        asyncio.run(daemon.request("POST", "/topic/t/logs"))
    with pytest.raises(ReadOnly, match="has ended or changed"):
        daemon.check_operator()
    # The token of the old login must not read for the person who uses this page now.
    with pytest.raises(DaemonUnavailable, match="has ended or changed"):
        asyncio.run(daemon.request("GET", "/topics"))


def test_open_page_of_an_operator_who_becomes_a_viewer_changes_nothing(tmp_path: Path) -> None:
    proxy = proxy_of(tmp_path, "viewer")
    scope = request_from("127.0.0.1", ("X-Forwarded-Email", "ann"))
    page = opened_page(lambda app: LoggedIn(app, Sessions(), proxy), scope)
    daemon = Daemon("http://127.0.0.1:1").for_person(page[PERSON], page[IS_CURRENT])
    with pytest.raises(DaemonUnavailable, match="no response"):
        asyncio.run(daemon.request("POST", "/topic/t/logs"))
    write_users(tmp_path / "users", [User("ann", Role.VIEWER, NO_PASSWORD)])
    check_page_has_ended(page)


def test_open_page_changes_nothing_after_its_session_ended() -> None:
    sessions = Sessions()
    number = sessions.begin(Person("ann"))
    scope = request_from("127.0.0.1", ("Cookie", f"{login.COOKIE}={number}"))
    page = opened_page(lambda app: LoggedIn(app, sessions, NO_PROXY), scope)
    assert page[IS_CURRENT]()
    sessions.end(number)
    sessions.begin(Person("ann"))
    check_page_has_ended(page)


def test_proxy_login_is_refused_while_the_users_file_cannot_be_read(tmp_path: Path) -> None:
    proxy, path = proxy_of(tmp_path, "operator"), tmp_path / "users"
    write_users(path, [User("ann", Role.VIEWER, NO_PASSWORD)])
    scope = request_from("127.0.0.1", ("X-Forwarded-Email", "ann"))
    restricted = proxy.person(scope)
    assert restricted is not None
    assert restricted.role is Role.VIEWER
    path.write_text("ann:viewr:-\n")
    with pytest.raises(Refused, match=r"nobody can log in until .*users can be read: .*line 1 has no role"):
        proxy.person(scope)
    write_users(path, [User("ann", Role.VIEWER, NO_PASSWORD)])
    path.chmod(0o644)
    path.write_text("ann:viewer:-\n\n")
    with pytest.raises(Refused, match="has mode 0644"):
        proxy.person(scope)
    path.unlink()
    newcomer = proxy.person(scope)
    assert newcomer is not None
    assert newcomer.role is Role.OPERATOR, "a missing file has no users yet"


def test_users_file_that_cannot_be_read_lets_nobody_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "users"
    users = UsersFile(path)
    assert users.get("ann") is None
    assert "no user can log in" in caplog.text
    write_users(path, [User("ann", Role.VIEWER, NO_PASSWORD)])
    assert users.get("ann") is not None
    path.chmod(0o666)
    path.write_text("ann:operator:-\n")
    assert users.get("ann") is None

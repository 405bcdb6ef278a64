"""Login by name and password, with a token of ``[security.tokens]``, or at a trusted proxy.

Invariant: without a session, or a name from the trusted proxy, no page of the console is served. The browser holds a
random session number, never the token. The token stays in this process, which sends it to the daemon with each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from http import HTTPStatus
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.config.keys.console import NO_ROLE, ConsoleConfig
from penstock.config.keys.security.servers import TokenConfig
from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.people import Person, Role
from penstock.console.users import NAME, User, is_password_of, read_users
from penstock.errors import PenstockError

COOKIE = "penstock_console"
PERSON = "penstock_person"
"""Key of the person in the scope of a request."""
IS_CURRENT = "penstock_is_current"
"""Key, in the scope, of a function that reports whether the login of the request still names this person."""
SESSION_S = 12 * 3600.0
TOKEN_CHECK_INTERVAL_S = 10.0
"""Longest time that a session outlives its token."""
MAX_FORM_BYTES = 8192
MAX_WAITING_LOGINS = 20
"""Limit: hashes are made one at a time (32 MiB and a tenth of a second each), so that guessing is slow and cheap."""
PATH = "/login"
STYLE = (Path(__file__).parent / "static" / "login.css").read_text()
_LOGGER = logging.getLogger(__name__)


class Refused(PenstockError):
    """A request that no login can permit; the text says why."""


class UsersFile:
    """The users of the password file, read again when it changes; empty if it is missing or cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._users: dict[str, User] = {}
        self._logged_problem = ""
        self.problem = ""
        """Why the file cannot be read; "" for a missing file, which has no users yet."""

    def get(self, name: str) -> User | None:
        """Return a user; None for an unknown name."""
        try:
            status = self._path.stat()
            version = status.st_ino, status.st_mtime_ns, status.st_size
            if version != self._version:
                self._users, self._version, self.problem = read_users(self._path), version, ""
                self._logged_problem = ""
        except (PenstockError, OSError) as error:
            self._users, self._version = {}, None
            self.problem = "" if isinstance(error, FileNotFoundError) else str(error)
            if self._logged_problem != str(error):
                self._logged_problem = str(error)
                _LOGGER.warning("console.users: %s; no user can log in", error)
        return self._users.get(name)


@dataclass(slots=True)
class TrustedProxy:
    """The proxy that names the user in a header; other addresses may not send this header."""

    header: bytes
    networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]
    default_role: Role | None
    """Role of a user that the password file does not list; None refuses them."""
    users: UsersFile | None = None

    @classmethod
    def from_config(cls, config: ConsoleConfig, users: UsersFile | None) -> TrustedProxy:
        """Create the proxy of a configuration; without a header it names no user."""
        role = None if config.trusted_user_role == NO_ROLE else Role(config.trusted_user_role)
        networks = [ipaddress.ip_network(network) for network in config.trusted_proxies]
        return cls(config.trusted_user_header.lower().encode(), networks, role, users)

    def person(self, scope: Scope) -> Person | None:
        """Return the person whom the proxy names; None without the header. Raises Refused."""
        names = [text for header, text in scope["headers"] if self.header and header.lower() == self.header]
        if not names:
            return None
        header = self.header.decode()
        # Order: the address first. Whoever can send this header from elsewhere could be anybody.
        if not self._trusts(scope):
            raise Refused(f"{header} is accepted from console.trusted_proxies only")
        name = names[0].decode("latin-1").strip()
        if len(names) > 1 or not NAME.fullmatch(name):
            raise Refused(f"{header} names no user")
        user = self.users.get(name) if self.users else None
        # Invariant: who is listed as a viewer never gets the default role because the list cannot be read.
        if self.users and self.users.problem:
            raise Refused(f"nobody can log in until the users can be read: {self.users.problem}")
        role = user.role if user else self.default_role
        if role is None:
            raise Refused(f"{name} is not a user of this console: penstock users add {name} --proxy-only")
        return Person(name, role, self.origin(scope))

    def origin(self, scope: Scope) -> str:
        """Return the address of the browser: the peer's, or what a trusted proxy says."""
        peer = str(scope["client"][0]) if scope.get("client") else ""
        if self._trusts(scope):
            forwarded = next((text for header, text in scope["headers"] if header.lower() == b"x-forwarded-for"), b"")
            if last := forwarded.decode("latin-1").rpartition(",")[2].strip()[:100]:
                return f"{last} by {peer}"
        return peer

    def _trusts(self, scope: Scope) -> bool:
        try:
            address = ipaddress.ip_address(scope["client"][0])
        except (KeyError, TypeError, ValueError):  # no address, such as a Unix socket
            return False
        return any(address in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class _Session:
    person: Person
    expires_s: float
    credential: str
    """The user's line in the password file, "" for a token: the session ends when it changes."""


@dataclass(slots=True)
class Sessions:
    """Persons by the secret number of their session, in memory only: a restarted console asks for a login again."""

    clock: Callable[[], float] = time.monotonic
    _sessions_by_number: dict[str, _Session] = field(default_factory=dict)

    def begin(self, person: Person, credential: str = "") -> str:
        """Start a session and return its number."""
        # Limit: expired sessions go whenever a new one starts, so their number is bounded by the logins of 12 hours.
        self._sessions_by_number = {
            key: session for key, session in self._sessions_by_number.items() if session.expires_s > self.clock()
        }
        number = secrets.token_urlsafe(32)
        self._sessions_by_number[number] = _Session(person, self.clock() + SESSION_S, credential)
        return number

    def person(self, number: str) -> Person | None:
        """Return the person of a session; None if it is unknown or has expired."""
        session = self._sessions_by_number.get(number)
        return session.person if session and session.expires_s > self.clock() else None

    def end(self, number: str) -> None:
        """Forget a session; an unknown number is ignored."""
        self._sessions_by_number.pop(number, None)

    async def end_revoked_sessions(self, daemon: Daemon, users: UsersFile | None = None) -> None:
        """End sessions whose token the daemon refuses, and sessions of changed users, until the task is cancelled."""
        while True:
            await asyncio.sleep(TOKEN_CHECK_INTERVAL_S)
            for number, session in list(self._sessions_by_number.items()):
                if session.credential:
                    user = users.get(session.person.name) if users else None
                    if user is None or user.line != session.credential:
                        self.end(number)
                    continue
                # A daemon that is down does not end sessions: it has refused nothing.
                with contextlib.suppress(DaemonUnavailable):
                    if await daemon.for_person(session.person).token_error():
                        self.end(number)


class LoggedIn:
    """ASGI middleware: a request without a person gets the login page only; a session's end closes its websockets."""

    def __init__(self, app: ASGIApp, sessions: Sessions, proxy: TrustedProxy, has_login: bool = True) -> None:
        """Create the middleware; without ``has_login`` only the proxy names persons."""
        self._app, self._sessions, self._proxy, self._has_login = app, sessions, proxy, has_login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            person = self._person(scope)
        except Refused as error:
            await self._refuse(scope, receive, send, PlainTextResponse(f"{error}\n", HTTPStatus.FORBIDDEN))
            return
        if person or (self._has_login and scope["path"] == PATH):
            is_current = partial(self._is_current, scope, person)
            scope = {**scope, PERSON: person, IS_CURRENT: is_current}
            is_websocket = scope["type"] == "websocket"
            await self._app(scope, receive, self._closing_send(is_current, send) if is_websocket else send)
        else:
            await self._refuse(scope, receive, send, _refusal(scope, self._has_login))

    def _person(self, scope: Scope) -> Person | None:
        """Return the person of a request. Raises Refused."""
        return self._proxy.person(scope) or self._sessions.person(_session_number(scope))

    def _is_current(self, scope: Scope, person: Person | None) -> bool:
        try:
            return self._person(scope) == person
        except Refused:
            return False

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, response: Response) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await response(scope, receive, send)

    def _closing_send(self, is_current: Callable[[], bool], send: Send) -> Send:
        async def send_if_logged_in(message: Message) -> None:
            # Checked at each message: a page that is already open must not show more once its session has ended.
            ended = message["type"] == "websocket.send" and not is_current()
            await send({"type": "websocket.close", "code": 1008} if ended else message)

        return send_if_logged_in


def _session_number(scope: Scope) -> str:
    cookies: SimpleCookie = SimpleCookie()
    with contextlib.suppress(Exception):  # a malformed cookie means no session
        cookies.load(next((value for name, value in scope["headers"] if name == b"cookie"), b"").decode("latin-1"))
    return cookies[COOKIE].value if COOKIE in cookies else ""


def _refusal(scope: Scope, has_login: bool) -> Response:
    """Redirect a browser to the login page, and refuse any other client."""
    accepted_types = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    if has_login and scope["type"] == "http" and scope["method"] == "GET" and b"text/html" in accepted_types:
        return RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
    advice = "Log in first" if has_login else "Log in at the proxy of this console"
    return PlainTextResponse(f"{advice}\n", HTTPStatus.UNAUTHORIZED)


class LoginPage:
    """The routes of login and logout."""

    def __init__(
        self,
        daemon: Daemon,
        sessions: Sessions,
        proxy: TrustedProxy,
        tokens: Mapping[str, TokenConfig],
        users: UsersFile | None = None,
    ) -> None:
        self._daemon, self._sessions, self._proxy, self._tokens, self._users = daemon, sessions, proxy, tokens, users
        self._hashing = asyncio.Lock()
        self._waiting_logins = 0

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter()
        router.add_api_route(PATH, self._show_form, methods=["GET"])
        router.add_api_route(PATH, self._log_in, methods=["POST"])
        router.add_api_route("/logout", self._log_out, methods=["GET"])
        return router

    async def _show_form(self) -> Response:
        return self._page()

    async def _log_in(self, request: Request) -> Response:
        form = _parse_form(await _read_form(request))
        if self._users and (name := form.get("name", "")):
            return await self._log_in_user(request, self._users, name, form.get("password", ""))
        if not self._tokens:
            return self._page("Enter a name and a password.", HTTPStatus.FORBIDDEN)
        return await self._log_in_with_token(request, _printable(form.get("token", "")))

    async def _log_in_user(self, request: Request, users: UsersFile, name: str, password: str) -> Response:
        if self._waiting_logins >= MAX_WAITING_LOGINS:
            return self._page("Too many logins at once; try again.", HTTPStatus.TOO_MANY_REQUESTS)
        user, origin = users.get(name), self._proxy.origin(request.scope)
        self._waiting_logins += 1
        try:
            async with self._hashing:
                is_known = await asyncio.to_thread(is_password_of, user, password)
        finally:
            self._waiting_logins -= 1
        if user is None or not is_known:
            _LOGGER.warning("login: wrong name or password for %r from %s", name[:100], origin)
            return self._page("Wrong name or password.", HTTPStatus.FORBIDDEN)
        return self._begin(request, Person(name, user.role, origin, has_session=True), user.line)

    async def _log_in_with_token(self, request: Request, token: str) -> Response:
        person = Person(self._name_of(token), origin=self._proxy.origin(request.scope), token=token, has_session=True)
        try:
            problem = await self._daemon.for_person(person).token_error() if token else "Enter a token."
        except DaemonUnavailable as error:
            return self._page(str(error), HTTPStatus.BAD_GATEWAY)
        return self._page(problem, HTTPStatus.FORBIDDEN) if problem else self._begin(request, person)

    def _name_of(self, token: str) -> str:
        """Return the name of a token; the daemon decides whether it is valid."""
        digest = f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"
        return next((name for name, config in self._tokens.items() if config.token in (token, digest)), "a token")

    def _begin(self, request: Request, person: Person, credential: str = "") -> Response:
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        number = self._sessions.begin(person, credential)
        # SameSite=strict: a link on another site must not act with this session.
        response.set_cookie(
            COOKIE, number, httponly=True, samesite="strict", secure=request.scope.get("scheme") == "https"
        )
        return response

    async def _log_out(self, request: Request) -> Response:
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
        response.delete_cookie(COOKIE)
        return response

    def _page(self, problem: str = "", status: int = HTTPStatus.OK) -> HTMLResponse:
        alert = f'<p class="bad" role="alert">{escape(problem)}</p>' if problem else ""
        forms = [USER_FORM] * bool(self._users) + [TOKEN_FORM] * bool(self._tokens)
        return HTMLResponse(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Log in - Penstock</title>'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
            f"<main><h1>Penstock</h1>{alert}{''.join(forms)}</main></html>",
            status,
            {"cache-control": "no-store"},
        )


USER_FORM = (
    f'<form method="post" action="{PATH}"><label for="name">Name</label>'
    '<input id="name" name="name" autocomplete="username" maxlength="100" required autofocus>'
    '<label for="password">Password</label>'
    '<input id="password" name="password" type="password" autocomplete="current-password" maxlength="1000" required>'
    "<button>Log in</button></form>"
)
TOKEN_FORM = (
    f'<form method="post" action="{PATH}"><label for="token">Token</label>'
    '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
    "<button>Log in</button>"
    "<p>A token of [security.tokens] with the right to watch (monitor or admin).</p></form>"
)


async def _read_form(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        # Limit: anybody may send this form, so reading stops early.
        if len(body) > MAX_FORM_BYTES:
            return b""
    return body


def _parse_form(form: bytes) -> dict[str, str]:
    """Return the fields of a form, the first of several values."""
    fields: dict[str, Any] = parse_qs(form.decode("ascii", "replace"))
    return {name: texts[0] for name, texts in fields.items()}


def _printable(token: str) -> str:
    """Return the token; "" unless it is printable ASCII, the only text that a header can carry."""
    token = token.strip()
    return token if token.isascii() and token.isprintable() else ""

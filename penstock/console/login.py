"""Login with a token of ``[security.tokens]``; without a session no page of the console is served.

Invariant: the browser holds a random session number, never the token. The token stays in this process, which sends it
to the daemon with each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.console.daemon_poll import Daemon, DaemonUnavailable
from penstock.console.people import Person

COOKIE = "penstock_console"
SESSION_S = 12 * 3600.0
TOKEN_CHECK_INTERVAL_S = 10.0
"""Longest time that a session outlives its token."""
MAX_FORM_BYTES = 4096
PATH = "/login"
STYLE = (Path(__file__).parent / "static" / "login.css").read_text()


@dataclass(slots=True)
class Sessions:
    """Tokens by the secret number of their session, in memory only: a restarted console asks for tokens again."""

    clock: Callable[[], float] = time.monotonic
    _sessions_by_number: dict[str, tuple[str, float]] = field(default_factory=dict)

    def begin(self, token: str) -> str:
        """Start a session and return its number."""
        # Limit: expired sessions go whenever a new one starts, so their number is bounded by the logins of 12 hours.
        self._sessions_by_number = {
            key: session for key, session in self._sessions_by_number.items() if session[1] > self.clock()
        }
        number = secrets.token_urlsafe(32)
        self._sessions_by_number[number] = token, self.clock() + SESSION_S
        return number

    def token(self, number: str) -> str:
        """Return the token of a session; "" if it is unknown or has expired."""
        token, expires_s = self._sessions_by_number.get(number, ("", 0.0))
        return token if expires_s > self.clock() else ""

    def end(self, number: str) -> None:
        """Forget a session; an unknown number is ignored."""
        self._sessions_by_number.pop(number, None)

    async def end_revoked_sessions(self, daemon: Daemon) -> None:
        """End sessions whose token the daemon refuses, until the task is cancelled."""
        while True:
            await asyncio.sleep(TOKEN_CHECK_INTERVAL_S)
            for number, (token, _) in list(self._sessions_by_number.items()):
                # A daemon that is down does not end sessions: it has refused nothing.
                with contextlib.suppress(DaemonUnavailable):
                    if await daemon.for_person(Person(token=token)).token_error():
                        self.end(number)


class LoggedIn:
    """ASGI middleware: without a session only the login page is served; the end of a session closes its websockets."""

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app, self._sessions = app, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] == PATH:
            await self._app(scope, receive, send)
            return
        number = _session_number(scope)
        if self._sessions.token(number):
            await self._app(scope, receive, self._closing_send(number, send) if scope["type"] == "websocket" else send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _refusal(scope)(scope, receive, send)

    def _closing_send(self, number: str, send: Send) -> Send:
        async def send_if_logged_in(message: Message) -> None:
            # Checked at each message: a page that is already open must not show more once its session has ended.
            ended = message["type"] == "websocket.send" and not self._sessions.token(number)
            await send({"type": "websocket.close", "code": 1008} if ended else message)

        return send_if_logged_in


def _session_number(scope: Scope) -> str:
    cookies: SimpleCookie = SimpleCookie()
    with contextlib.suppress(Exception):  # a malformed cookie means no session
        cookies.load(next((value for name, value in scope["headers"] if name == b"cookie"), b"").decode("latin-1"))
    return cookies[COOKIE].value if COOKIE in cookies else ""


def _refusal(scope: Scope) -> Response:
    """Redirect a browser to the login page, and refuse any other client."""
    accepted_types = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    if scope["method"] == "GET" and b"text/html" in accepted_types:
        return RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
    return PlainTextResponse("Log in first\n", HTTPStatus.UNAUTHORIZED)


def login_router(daemon: Daemon, sessions: Sessions) -> APIRouter:
    """Return the routes of login and logout."""
    router = APIRouter()

    async def show_form() -> Response:
        return _login_page()

    async def log_in(request: Request) -> Response:
        token = _parse_token(await _read_form(request))
        try:
            problem = await daemon.for_person(Person(token=token)).token_error() if token else "Enter a token."
        except DaemonUnavailable as error:
            return _login_page(str(error), HTTPStatus.BAD_GATEWAY)
        if problem:
            return _login_page(problem, HTTPStatus.FORBIDDEN)
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        # SameSite=strict: a link on another site must not act with this session.
        response.set_cookie(COOKIE, sessions.begin(token), httponly=True, samesite="strict")
        return response

    async def log_out(request: Request) -> Response:
        sessions.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
        response.delete_cookie(COOKIE)
        return response

    router.add_api_route(PATH, show_form, methods=["GET"])
    router.add_api_route(PATH, log_in, methods=["POST"])
    router.add_api_route("/logout", log_out, methods=["GET"])
    return router


async def _read_form(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        # Limit: anybody may send this form, so reading stops early.
        if len(body) > MAX_FORM_BYTES:
            return b""
    return body


def _parse_token(form: bytes) -> str:
    """Return the token of a form; "" unless it is printable ASCII, the only text that a header can carry."""
    fields: dict[str, Any] = parse_qs(form.decode("ascii", "replace"))
    token: str = fields.get("token", [""])[0].strip()
    return token if token.isascii() and token.isprintable() else ""


def _login_page(problem: str = "", status: int = HTTPStatus.OK) -> HTMLResponse:
    alert = f'<p class="bad" role="alert">{escape(problem)}</p>' if problem else ""
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Log in - Penstock</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f'<form method="post" action="{PATH}"><h1>Penstock</h1>{alert}<label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
        "<button>Log in</button>"
        "<p>A token of [security.tokens] with the right to watch (monitor or admin).</p></form></html>",
        status,
        {"cache-control": "no-store"},
    )

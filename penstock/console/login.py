"""Logging in with a token, where there are any: nothing of the console is shown before.

A browser holds the number of a session, never the token: that stays in this process, which asks the daemon with it.
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

from penstock.console.daemon_poll import Away, Daemon

COOKIE = "penstock_console"
LASTS = 12 * 3600.0
"""Seconds of a session."""
RECHECK = 10.0
"""Seconds after which a token that was taken away ends its sessions."""
LONGEST = 4096
"""Bytes of a form."""
PATH = "/login"
STYLE = (Path(__file__).parent / "static" / "login.css").read_text()


@dataclass(slots=True)
class Sessions:
    """Who is logged in: tokens by the secret number of their session."""

    clock: Callable[[], float] = time.monotonic
    _found: dict[str, tuple[str, float]] = field(default_factory=dict)

    def begin(self, token: str) -> str:
        """The number of a new session."""
        self._found = {key: one for key, one in self._found.items() if one[1] > self.clock()}
        number = secrets.token_urlsafe(32)
        self._found[number] = token, self.clock() + LASTS
        return number

    def token(self, number: str) -> str:
        """The token of a session; "" where there is none, or not any more."""
        token, until = self._found.get(number, ("", 0.0))
        return token if until > self.clock() else ""

    def end(self, number: str) -> None:
        """Forget a session."""
        self._found.pop(number, None)

    async def keep(self, daemon: Daemon) -> None:
        """For ever: forget the sessions whose tokens the daemon does not take any more."""
        while True:
            await asyncio.sleep(RECHECK)
            for number, (token, _) in list(self._found.items()):
                with contextlib.suppress(Away):
                    if await daemon.seen_by(token).refuses():
                        self.end(number)


class LoggedIn:
    """Lets nobody beyond the page of the login without a session; one that ends closes its pages' connections."""

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app, self._sessions = app, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] == PATH:
            await self._app(scope, receive, send)
            return
        number = _number(scope)
        if self._sessions.token(number):
            await self._app(scope, receive, self._watched(number, send) if scope["type"] == "websocket" else send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _to_login(scope)(scope, receive, send)

    def _watched(self, number: str, send: Send) -> Send:
        async def watched(message: Message) -> None:
            ended = message["type"] == "websocket.send" and not self._sessions.token(number)
            await send({"type": "websocket.close", "code": 1008} if ended else message)

        return watched


def _number(scope: Scope) -> str:
    cookies: SimpleCookie = SimpleCookie()
    with contextlib.suppress(Exception):  # what is no cookie is none
        cookies.load(next((value for name, value in scope["headers"] if name == b"cookie"), b"").decode("latin-1"))
    return cookies[COOKIE].value if COOKIE in cookies else ""


def _to_login(scope: Scope) -> Response:
    """Pages lead to the login, all else is refused."""
    accepted = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    if scope["method"] == "GET" and b"text/html" in accepted:
        return RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
    return PlainTextResponse("Log in first\n", HTTPStatus.UNAUTHORIZED)


def login_router(daemon: Daemon, sessions: Sessions) -> APIRouter:
    """The pages of logging in and out."""
    router = APIRouter()

    async def show() -> Response:
        return _page()

    async def log_in(request: Request) -> Response:
        token = _token(await _form(request))
        try:
            wrong = await daemon.seen_by(token).refuses() if token else "A token is needed."
        except Away as error:
            return _page(str(error), HTTPStatus.BAD_GATEWAY)
        if wrong:
            return _page(wrong, HTTPStatus.FORBIDDEN)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(COOKIE, sessions.begin(token), httponly=True, samesite="strict")
        return answer

    async def log_out(request: Request) -> Response:
        sessions.end(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse(PATH, HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE)
        return answer

    router.add_api_route(PATH, show, methods=["GET"])
    router.add_api_route(PATH, log_in, methods=["POST"])
    router.add_api_route("/logout", log_out, methods=["GET"])
    return router


async def _form(request: Request) -> bytes:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LONGEST:
            return b""
    return data


def _token(form: bytes) -> str:
    """A header can carry printable ASCII alone, as tokens are."""
    given: dict[str, Any] = parse_qs(form.decode("ascii", "replace"))
    token: str = given.get("token", [""])[0].strip()
    return token if token.isascii() and token.isprintable() else ""


def _page(wrong: str = "", status: int = HTTPStatus.OK) -> HTMLResponse:
    told = f'<p class="bad" role="alert">{escape(wrong)}</p>' if wrong else ""
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Log in - Penstock</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f'<form method="post" action="{PATH}"><h1>Penstock</h1>{told}<label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
        "<button>Log in</button>"
        "<p>One of [security.tokens] that may watch (monitor or admin).</p></form></html>",
        status,
        {"cache-control": "no-store"},
    )

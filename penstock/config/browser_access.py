"""Protection of HTTP servers from other sites' pages and from foreign names that resolve to this machine.

Limit: requests without a browser have no ``Origin`` and use the real host name, so they are not affected.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
ANY = "*"
FRAME_HEADERS = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
CONSOLE_POLICY = (
    # NiceGUI's pages have inline scripts and styles, and compile their templates in the browser.
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'"
)
STATIC_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"


def refusal(host: str, origin: str | None, names: Collection[str]) -> str:
    """Return the reason to refuse a request with these headers; "" permits it. ``names`` of this machine; ``*`` is any.

    An IP address cannot be rebound by DNS, so it needs no entry; a page's origin must be the host that it requests.
    """
    name, origin_host = _without_port(host), _host_of_origin(origin)
    # Without this test a name that an attacker controls could resolve to 127.0.0.1 (DNS rebinding).
    if host and ANY not in names and not (_is_local(name) or name in names):
        return f"the host {host[:100]!r} is unknown: add it to security.hosts"
    if origin is not None and origin_host != host.strip().lower() and _without_port(origin_host) not in names:
        return f"pages of {origin[:100]!r} may not send requests here"
    return ""


def _host_of_origin(origin: str | None) -> str:
    try:
        # A malformed origin raises ValueError and matches no host.
        return urlsplit(origin or "").netloc.lower()
    except ValueError:
        return ""


def _without_port(host: str) -> str:
    host = host.strip().lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_local(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class BrowserAccess:
    """Middleware that refuses such requests with 403 while ``is_enabled`` returns True."""

    def __init__(self, app: App, names: Iterable[str], is_enabled: Callable[[], bool] = lambda: True) -> None:
        self._app, self._names, self._is_enabled = app, frozenset(map(str.lower, names)), is_enabled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = self._refusal(scope) if scope["type"] in ("http", "websocket") and self._is_enabled() else ""
        if not reason:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps({"error": reason, "code": 7}).encode()})

    def _refusal(self, scope: Scope) -> str:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"host", b"origin")}
        return refusal(headers.get(b"host", ""), headers.get(b"origin"), self._names)


class SecurityHeaders:
    """Middleware that adds the content security policy and ``FRAME_HEADERS`` to each response.

    A page that another site could frame would let one click there send a message here.
    """

    def __init__(self, app: App, policy: str) -> None:
        self._app = app
        headers = FRAME_HEADERS | {"content-security-policy": policy}
        self._headers = [(name.encode(), text.encode()) for name, text in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                replaced = {name for name, _ in self._headers}
                remaining = [(name, text) for name, text in message.get("headers", ()) if name.lower() not in replaced]
                message = {**message, "headers": [*remaining, *self._headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)

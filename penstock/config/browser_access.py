"""What a browser may send here: pages of other sites, and names that others point at this machine, are kept out.

Who calls without a browser shows no ``Origin`` and names the host that it was told, so nothing changes for it.
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


def refusal(host: str, origin: str | None, names: Collection[str]) -> str:
    """Why a request with these headers is refused; "" where it is not. ``names``: of this machine, ``*`` for any.

    An address needs no name that could be pointed elsewhere; a page's origin has to be the host it asks.
    """
    name, page = _name(host), _page(origin)
    if host and ANY not in names and not (_is_local(name) or name in names):
        return f"the host {host[:100]!r} is not known here: security.hosts names those that are"
    if origin is not None and page != host.strip().lower() and _name(page) not in names:
        return f"pages of {origin[:100]!r} may not ask this"
    return ""


def _page(origin: str | None) -> str:
    """The host of a page's origin; empty where it is none."""
    try:
        return urlsplit(origin or "").netloc.lower()
    except ValueError:
        return ""


def _name(host: str) -> str:
    """``host`` without its port, in lower case."""
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
    """Refuses such requests with 403 before the application sees them, as long as ``asked`` says so."""

    def __init__(self, app: App, names: Iterable[str], asked: Callable[[], bool] = lambda: True) -> None:
        self._app, self._names, self._asked = app, frozenset(map(str.lower, names)), asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why = self._refusal(scope) if scope["type"] in ("http", "websocket") and self._asked() else ""
        if not why:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps({"error": why, "code": 7}).encode()})

    def _refusal(self, scope: Scope) -> str:
        shown = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"host", b"origin")}
        return refusal(shown.get(b"host", ""), shown.get(b"origin"), self._names)

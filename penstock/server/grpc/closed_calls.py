"""Health and reflection, which are not the API's own calls: asked for a token only where the configuration says so."""

from __future__ import annotations

from typing import Any

from penstock.server.auth.rights import TokenAuthenticator
from penstock.slogd.errors import Unauthenticated


class TokenForServices:
    """Why calls of ``services`` (full names) that show no token that is known are refused."""

    def __init__(self, guard: TokenAuthenticator, services: tuple[str, ...]) -> None:
        self._guard, self._begins = guard, tuple(f"/{name}/" for name in services)

    def __call__(self, method: str, metadata: Any) -> str | None:
        """None where the call is let in."""
        if not self._guard.closed or not method.startswith(self._begins):
            return None
        shown = next((str(value) for name, value in metadata if name == "authorization"), None)
        try:
            self._guard.caller(shown)
        except Unauthenticated as error:
            return error.message
        return None

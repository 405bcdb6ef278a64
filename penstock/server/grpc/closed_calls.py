"""Tokens for the services health and reflection, which require one only if the configuration says so."""

from __future__ import annotations

from typing import Any

from penstock.server.auth.rights import TokenAuthenticator
from penstock.slogd.errors import Unauthenticated


class TokenForServices:
    """Check of tokens for calls of ``services`` (full names)."""

    def __init__(self, guard: TokenAuthenticator, services: tuple[str, ...]) -> None:
        self._guard, self._prefixes = guard, tuple(f"/{name}/" for name in services)

    def __call__(self, method: str, metadata: Any) -> str | None:
        """Return why the call is refused; None if it is allowed."""
        if not self._guard.closed or not method.startswith(self._prefixes):
            return None
        return self._refusal(metadata)

    def admits(self, metadata: Any) -> bool:
        """Report whether a call has a valid token, or none is needed."""
        return not self._guard.closed or self._refusal(metadata) is None

    def _refusal(self, metadata: Any) -> str | None:
        header = next((str(content) for name, content in metadata if name == "authorization"), None)
        try:
            self._guard.caller(header)
        except Unauthenticated as error:
            return error.message
        return None

"""SaslHandshake and SaslAuthenticate: Penstock's tokens as PLAIN's passwords and OAUTHBEARER's tokens."""

from __future__ import annotations

import re

from kio.schema.errors import ErrorCode

from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.kafka.schema.messages import Values
from penstock.slogd.errors import Unauthenticated

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, OAUTHBEARER)
_BEARER = re.compile(rb"n,[^,]*,\x01(?:[^\x01]*\x01)*?auth=Bearer ([^\x01]+)\x01", re.IGNORECASE | re.DOTALL)
_SAME = "SASL: the user or the token is not known"


class Sasl:
    """How far the client of one connection has come; ``authorization`` is what it shows, as HTTP has it."""

    def __init__(self, guard: TokenAuthenticator) -> None:
        self._guard = guard
        self._mechanism = ""
        self.authorization: str | None = None

    def handshake(self, mechanism: str) -> Values:
        """The mechanisms that are known."""
        self._mechanism = mechanism if mechanism in MECHANISMS else ""
        code = ErrorCode.none if self._mechanism else ErrorCode.unsupported_sasl_mechanism
        return {"error_code": code, "mechanisms": MECHANISMS}

    def authenticate(self, shown: bytes) -> Values:
        """Whether the client is known. With PLAIN the user is the token's name."""
        if not self._mechanism:
            return {"error_code": ErrorCode.illegal_sasl_state, "error_message": "SASL: a handshake comes first"}
        user, token = _plain(shown) if self._mechanism == PLAIN else (None, _bearer(shown))
        try:
            caller = self._guard.caller(f"Bearer {token}")
        except Unauthenticated:
            return {"error_code": ErrorCode.sasl_authentication_failed, "error_message": _SAME}
        if user is not None and self._guard.closed and user != caller.name:
            return {"error_code": ErrorCode.sasl_authentication_failed, "error_message": _SAME}
        self.authorization = f"Bearer {token}"
        return {}


def _plain(shown: bytes) -> tuple[str, str]:
    """User and password."""
    parts = shown.split(b"\x00")
    user, password = (parts[1], parts[2]) if len(parts) == 3 else (b"", b"")
    return user.decode(errors="replace"), password.decode(errors="replace")


def _bearer(shown: bytes) -> str:
    found = _BEARER.match(shown)
    return found[1].decode(errors="replace") if found else ""

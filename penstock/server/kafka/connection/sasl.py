"""SaslHandshake and SaslAuthenticate: Penstock's tokens as PLAIN passwords or OAUTHBEARER tokens (RFC 7628)."""

from __future__ import annotations

import re

from kio.schema.errors import ErrorCode

from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.kafka.schema.messages import Values
from penstock.slogd.errors import Unauthenticated

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, OAUTHBEARER)
_BEARER = re.compile(rb"n,[^,]*,\x01(?:[^\x01]*\x01)*?auth=Bearer ([^\x01]+)\x01", re.IGNORECASE | re.DOTALL)
_UNKNOWN_CALLER = "SASL: unknown user or token"


class Sasl:
    """SASL state of one connection; ``authorization`` is the client's token as an HTTP header has it."""

    def __init__(self, guard: TokenAuthenticator) -> None:
        self._guard = guard
        self._mechanism = ""
        self.authorization: str | None = None

    def handshake(self, mechanism: str) -> Values:
        """Choose a mechanism and return the supported ones."""
        self._mechanism = mechanism if mechanism in MECHANISMS else ""
        code = ErrorCode.none if self._mechanism else ErrorCode.unsupported_sasl_mechanism
        return {"error_code": code, "mechanisms": MECHANISMS}

    def authenticate(self, credentials: bytes) -> Values:
        """Check the client's credentials. With PLAIN the user is the name of the token."""
        if not self._mechanism:
            return {"error_code": ErrorCode.illegal_sasl_state, "error_message": "SASL: send a handshake first"}
        user, token = _plain(credentials) if self._mechanism == PLAIN else (None, _bearer(credentials))
        try:
            caller = self._guard.caller(f"Bearer {token}")
        except Unauthenticated:
            return {"error_code": ErrorCode.sasl_authentication_failed, "error_message": _UNKNOWN_CALLER}
        # One text for all failures, so that a client cannot probe which users exist.
        if user is not None and self._guard.closed and user != caller.name:
            return {"error_code": ErrorCode.sasl_authentication_failed, "error_message": _UNKNOWN_CALLER}
        self.authorization = f"Bearer {token}"
        return {}


def _plain(credentials: bytes) -> tuple[str, str]:
    """Return user and password."""
    parts = credentials.split(b"\x00")
    user, password = (parts[1], parts[2]) if len(parts) == 3 else (b"", b"")
    return user.decode(errors="replace"), password.decode(errors="replace")


def _bearer(credentials: bytes) -> str:
    match = _BEARER.match(credentials)
    return match[1].decode(errors="replace") if match else ""

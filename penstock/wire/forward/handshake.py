"""Handshake of the forward protocol: both sides prove that they know the shared key without sending it.

Each digest covers a random value of the other side, so that a recorded handshake cannot be repeated.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgpack


class Handshake:
    """The listener's side of one connection; ``nonce`` has 16 random bytes."""

    def __init__(self, key: str, name: str, nonce: bytes) -> None:
        self._key, self._name, self._nonce = key.encode(), name.encode(), nonce

    @property
    def greeting(self) -> bytes:
        """HELO, the first message of the connection."""
        options = {"nonce": self._nonce, "auth": b"", "keepalive": True}
        packed: bytes = msgpack.packb(["HELO", options])
        return packed

    def answer(self, request: bytes) -> tuple[bool, bytes]:
        """Return whether a PING proves the knowledge of the key, and the PONG that answers it."""
        try:
            ping = msgpack.unpackb(request, raw=True, strict_map_key=False)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException):  # TypeError: a map used as a key
            ping = None
        salt, is_valid = self._check_ping(ping)
        digest = self._digest(salt, self._name) if is_valid else ""
        reason = "" if is_valid else "shared_key mismatch"
        packed: bytes = msgpack.packb(["PONG", is_valid, reason, self._name.decode(), digest])
        return is_valid, packed

    def _check_ping(self, ping: Any) -> tuple[bytes, bool]:
        """Return the salt of a PING, and whether its digest is correct."""
        if not isinstance(ping, list) or len(ping) < 4 or not all(isinstance(part, bytes) for part in ping[:4]):
            return b"", False
        verb, name, salt, digest = ping[:4]
        expected = self._digest(salt, name).encode()
        # Constant time: the duration must not show how many characters of a guessed digest are correct.
        return salt, verb == b"PING" and hmac.compare_digest(digest, expected)

    def _digest(self, salt: bytes, name: bytes) -> str:
        return hashlib.sha512(salt + name + self._nonce + self._key).hexdigest()

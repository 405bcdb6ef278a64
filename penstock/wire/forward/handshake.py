"""The handshake of the forward protocol: both sides show that they know the shared key, without saying it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgpack


class Handshake:
    """The listener's side of one connection. ``nonce``: 16 random bytes."""

    def __init__(self, key: str, name: str, nonce: bytes) -> None:
        self._key, self._name, self._nonce = key.encode(), name.encode(), nonce

    @property
    def greeting(self) -> bytes:
        """HELO: what is sent first."""
        options = {"nonce": self._nonce, "auth": b"", "keepalive": True}
        packed: bytes = msgpack.packb(["HELO", options])
        return packed

    def answer(self, request: bytes) -> tuple[bool, bytes]:
        """Whether a PING shows that its sender knows the key, and the PONG for it."""
        try:
            said = msgpack.unpackb(request, raw=True, strict_map_key=False)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException):  # TypeError: a map as a key
            said = None
        salt, is_known = self._judge(said)
        digest = self._digest(salt, self._name) if is_known else ""
        reason = "" if is_known else "shared_key mismatch"
        packed: bytes = msgpack.packb(["PONG", is_known, reason, self._name.decode(), digest])
        return is_known, packed

    def _judge(self, said: Any) -> tuple[bytes, bool]:
        """The salt of a PING, and whether its digest is right."""
        if not isinstance(said, list) or len(said) < 4 or not all(isinstance(part, bytes) for part in said[:4]):
            return b"", False
        verb, name, salt, digest = said[:4]
        right = self._digest(salt, name).encode()
        return salt, verb == b"PING" and hmac.compare_digest(digest, right)

    def _digest(self, salt: bytes, name: bytes) -> str:
        return hashlib.sha512(salt + name + self._nonce + self._key).hexdigest()

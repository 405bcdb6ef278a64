"""Encrypt messages as plog does: the value is the initialization vector followed by the ciphertext.

With GCM the vector has 12 bytes and the ciphertext ends with the 16 bytes of its tag, as Java's ciphers produce it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.padding import PKCS7

from penstock.errors import PenstockError

try:
    from cryptography.hazmat.decrepit.ciphers.modes import CFB, CFB8, OFB
except ImportError:  # Workaround: older releases of cryptography have no module of decrepit modes
    from cryptography.hazmat.primitives.ciphers.modes import CFB, CFB8, OFB

BLOCK_BYTES = 16
GCM_VECTOR_BYTES = 12
"""Length of the initialization vector that Java generates for GCM."""
_MODES: Mapping[str, Callable[[bytes], Any]] = {
    "CBC": modes.CBC,
    "CTR": modes.CTR,
    "CFB": CFB,
    "CFB8": CFB8,
    "OFB": OFB,
}


class NotDecrypted(PenstockError, ValueError):
    """A value cannot be decrypted: too short, altered, or encrypted with another key or mode."""


class Encryption:
    """AES with ``key`` (16, 24 or 32 bytes) in ``mode``; ``padded`` fills messages to whole blocks (PKCS #5).

    Without padding CBC accepts only messages of whole blocks and raises ValueError for others.
    """

    def __init__(self, key: bytes, mode: str = "GCM", padded: bool = False) -> None:
        self._padded = padded
        self._vector_bytes = GCM_VECTOR_BYTES if mode == "GCM" else BLOCK_BYTES
        self._gcm = AESGCM(key) if mode == "GCM" else None
        self._cipher = partial(_cipher, algorithms.AES(key), mode)

    def encrypt(self, message: bytes, vector: bytes | None = None) -> bytes:
        """Return the value of ``message``; ``vector`` is random unless a test sets it."""
        vector = vector or os.urandom(self._vector_bytes)
        if self._gcm:
            return vector + self._gcm.encrypt(vector, message, None)
        padder = PKCS7(8 * BLOCK_BYTES).padder() if self._padded else None
        plaintext = padder.update(message) + padder.finalize() if padder else message
        encryptor = self._cipher(vector).encryptor()
        return vector + encryptor.update(plaintext) + encryptor.finalize()

    def decrypt(self, encrypted: bytes) -> bytes:
        """Return the message of a value. Raises NotDecrypted."""
        vector, ciphertext = encrypted[: self._vector_bytes], encrypted[self._vector_bytes :]
        try:
            if self._gcm:
                return self._gcm.decrypt(vector, ciphertext, None)
            decryptor = self._cipher(vector).decryptor()
            plaintext = decryptor.update(ciphertext) + decryptor.finalize()
            if not self._padded:
                return plaintext
            unpadder = PKCS7(8 * BLOCK_BYTES).unpadder()
            return unpadder.update(plaintext) + unpadder.finalize()
        except (ValueError, InvalidTag) as error:
            raise NotDecrypted(
                f"{len(encrypted)} bytes cannot be decrypted: {error or 'the tag does not match'}"
            ) from None


def _cipher(algorithm: algorithms.AES, mode: str, vector: bytes) -> Cipher[Any]:
    return Cipher(algorithm, _MODES[mode](vector))

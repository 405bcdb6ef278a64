"""Encryption of messages as plog does it: the value is the initialization vector and then the ciphertext.

With GCM the vector has 12 bytes and the ciphertext ends with the 16 bytes of its tag, as Java's ciphers have it.
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
except ImportError:  # older releases have them among the others
    from cryptography.hazmat.primitives.ciphers.modes import CFB, CFB8, OFB

BLOCK = 16
GCM_VECTOR = 12
"""Bytes of the initialization vector that Java takes for GCM when it is told none."""
_MODES: Mapping[str, Callable[[bytes], Any]] = {
    "CBC": modes.CBC,
    "CTR": modes.CTR,
    "CFB": CFB,
    "CFB8": CFB8,
    "OFB": OFB,
}


class NotDecrypted(PenstockError, ValueError):
    """A value cannot be decrypted: too short, changed on its way, or encrypted otherwise."""


class Encryption:
    """AES with ``key`` (16, 24 or 32 bytes) in ``mode``; ``padded``: messages are filled up to whole blocks (PKCS #5).

    Without padding CBC takes only messages of whole blocks: ValueError for others.
    """

    def __init__(self, key: bytes, mode: str = "GCM", padded: bool = False) -> None:
        self._padded = padded
        self._vector = GCM_VECTOR if mode == "GCM" else BLOCK
        self._gcm = AESGCM(key) if mode == "GCM" else None
        self._cipher = partial(_cipher, algorithms.AES(key), mode)

    def encrypt(self, message: bytes, vector: bytes | None = None) -> bytes:
        """The value of ``message``, with a fresh random vector."""
        vector = vector or os.urandom(self._vector)
        if self._gcm:
            return vector + self._gcm.encrypt(vector, message, None)
        padder = PKCS7(8 * BLOCK).padder() if self._padded else None
        whole = padder.update(message) + padder.finalize() if padder else message
        encryptor = self._cipher(vector).encryptor()
        return vector + encryptor.update(whole) + encryptor.finalize()

    def decrypt(self, value: bytes) -> bytes:
        """The message of a value. Raises NotDecrypted."""
        vector, ciphertext = value[: self._vector], value[self._vector :]
        try:
            if self._gcm:
                return self._gcm.decrypt(vector, ciphertext, None)
            decryptor = self._cipher(vector).decryptor()
            whole = decryptor.update(ciphertext) + decryptor.finalize()
            if not self._padded:
                return whole
            unpadder = PKCS7(8 * BLOCK).unpadder()
            return unpadder.update(whole) + unpadder.finalize()
        except (ValueError, InvalidTag) as error:
            raise NotDecrypted(f"{len(value)} bytes cannot be decrypted: {error or 'its tag does not fit'}") from None


def _cipher(algorithm: algorithms.AES, mode: str, vector: bytes) -> Cipher[Any]:
    return Cipher(algorithm, _MODES[mode](vector))

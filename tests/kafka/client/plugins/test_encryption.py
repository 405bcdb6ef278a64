"""Encryption compatible with the Java ciphers that plog uses, in both directions."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.client.plugins.encryption import Encryption, NotDecrypted

KEY, MESSAGE = b"0123456789abcdef", b"a message for Kafka"
BY_JAVA = [  # mode, padded, initialization vector and ciphertext by SunJCE
    ("GCM", False, "6820964f00a9c383b64467951e082928439a6e6d2091a90ea26dc7c92eb7899461151930d8f48073babfea18934927"),
    ("CBC", True, "95f2008eedaa439418a19930e7aa852bfa120f2dafe14479f96af770281bcdec679fb2bfa42154077bbfa425f29f6151"),
    ("CTR", False, "199aee11b4ecc6c8431749773cdea54969653d7c0c932bbbd610cf5e96a7a718d5eded"),
    ("CFB", False, "35627df5c6680b4a920799939b6e17316889e915e19261a88d00a7bfd5d0c0334335b0"),
    ("CFB", True, "919d6db14e8379fc6d0b986b95aedaae31c30c9f164a40390e17dd904990a5dd174fa70c8e4cbf33992cbfab332d84d2"),
    ("CFB8", False, "d3a8359f19504088155b87de14d95760f3d8da5856042d1cf03abef3c375019247d555"),
    ("OFB", False, "cf76b6b1a4c56ee2fd3340ceeca8dca605c5081fd31249f0ae8ccda6fde16f1e04410f"),
]


@pytest.mark.parametrize(("mode", "padded", "value"), BY_JAVA)
def test_values_of_java_are_decrypted_and_reproduced(mode: str, padded: bool, value: str) -> None:
    encryption, data = Encryption(KEY, mode, padded), bytes.fromhex(value)
    assert encryption.decrypt(data) == MESSAGE
    vector = data[: 12 if mode == "GCM" else 16]
    assert encryption.encrypt(MESSAGE, vector) == data


@pytest.mark.parametrize(("mode", "padded"), [(mode, padded) for mode, padded, _ in BY_JAVA])
@pytest.mark.parametrize("length", [16, 24, 32])
@given(message=st.binary(max_size=100))
def test_encrypted_message_is_decrypted(mode: str, padded: bool, length: int, message: bytes) -> None:
    encryption = Encryption(bytes(range(length)), mode, padded)
    assert encryption.decrypt(encryption.encrypt(message)) == message


def test_each_message_has_its_own_vector() -> None:
    encryption = Encryption(KEY)
    first, second = encryption.encrypt(MESSAGE), encryption.encrypt(MESSAGE)
    assert first[:12] != second[:12]
    assert first != second


def test_cbc_without_padding_accepts_only_complete_blocks() -> None:
    encryption = Encryption(KEY, "CBC", padded=False)
    assert encryption.decrypt(encryption.encrypt(b"x" * 32)) == b"x" * 32
    with pytest.raises(ValueError, match="block length"):
        encryption.encrypt(b"x" * 31)


@given(st.sampled_from(BY_JAVA), st.binary(max_size=64))
def test_any_value_is_decrypted_or_refused(kind: tuple[str, bool, str], value: bytes) -> None:
    with contextlib.suppress(NotDecrypted):
        assert len(Encryption(KEY, kind[0], kind[1]).decrypt(value)) <= len(value)


def test_changed_value_is_not_decrypted() -> None:
    value = bytearray(Encryption(KEY).encrypt(MESSAGE))
    value[-1] ^= 1
    with pytest.raises(NotDecrypted):
        Encryption(KEY).decrypt(bytes(value))

"""Tokens and certificates of Penstock's own processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from penstock.config.daemon_access import internal_token, read_token
from penstock.files.errors import DamagedFile
from tests.fuzzed import RAW


def test_token_is_created_once_and_may_end_with_a_newline(tmp_path: Path) -> None:
    token = internal_token(tmp_path)
    assert internal_token(tmp_path) == token
    (tmp_path / "token").write_text(f"{token}\n")
    assert internal_token(tmp_path) == token


@given(RAW)
def test_arbitrary_bytes_are_a_valid_token_or_damage(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("data") / "token"
    path.write_bytes(data)
    try:
        token = read_token(path)
    except DamagedFile as error:
        assert str(path) in str(error)  # noqa: PT017 some bytes are a token
    else:
        assert token.isascii()
        assert token.isprintable()

"""Tokens and certificates of Penstock's own processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from penstock.config.daemon_access import internal_token, read_token
from penstock.files.errors import DamagedFile, UnsafeFile
from tests.fuzzed import RAW


def test_token_is_created_once_and_may_end_with_a_newline(tmp_path: Path) -> None:
    token = internal_token(tmp_path)
    assert internal_token(tmp_path) == token
    (tmp_path / "token").write_text(f"{token}\n")
    assert internal_token(tmp_path) == token


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (b"\xffdamaged", 0o600, "is damaged or not a token"),
        (b"", 0o600, "is damaged or not a token"),
        (b"planted-by-somebody-else", 0o644, "has mode 0644, so that others have access to it"),
        (b"planted-by-somebody-else", 0o660, "has mode 0660, so that others have access to it"),
    ],
)
def test_start_replaces_a_damaged_or_unsafe_token_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, mode: int, reason: str
) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises((DamagedFile, UnsafeFile), match=f"{reason}.*the next start of Penstock makes a new token"):
        internal_token(tmp_path)
    token = internal_token(tmp_path, replace=True)
    assert (len(token), internal_token(tmp_path), path.stat().st_mode & 0o777) == (64, token, 0o600)
    [record] = caplog.records
    assert record.getMessage().startswith(f"{path} {reason}")
    assert record.getMessage().endswith("; a new token is made")


@given(RAW)
def test_arbitrary_bytes_are_a_valid_token_or_damage(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("data") / "token"
    path.write_bytes(data)
    path.chmod(0o600)
    try:
        token = read_token(path)
    except DamagedFile as error:
        assert str(path) in str(error)  # noqa: PT017 some bytes are a token
    else:
        assert token.isascii()
        assert token.isprintable()

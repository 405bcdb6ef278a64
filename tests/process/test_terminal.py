"""Control characters are escaped."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.process.terminal import visible, visible_bytes


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain, t\xc3\xa9xt \xe2\x82\xac\t", "plain, t\xe9xt \u20ac\t"),
        (b"\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        (b"a\nb\rc\x7f", "a\\x0ab\\x0dc\\x7f"),
        (b"\xc2\x9b31m", "\\x9b31m"),
        (b"\x9b31m\xff", "\\x9b31m\\xff"),
        ("\u202edrah".encode(), "\\u202edrah"),
    ],
)
def test_controls_are_escaped_and_text_stays(data: bytes, shown: str) -> None:
    assert visible_bytes(data) == shown.encode()


@given(st.binary())
def test_no_control_character_is_left(data: bytes) -> None:
    shown = visible_bytes(data).decode()
    assert shown == visible(shown)
    assert not any(ord(character) < 32 and character != "\t" for character in shown)


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("latin-1", b"\xe9 ##=. \\u2603\n"),
        ("ascii", b"\\xe9 ##=. \\u2603\n"),
        ("utf-8", "é ██▓░ ☃\n".encode()),
    ],
)
def test_characters_that_the_output_cannot_encode_are_escaped(encoding: str, printed: bytes) -> None:
    program = "from penstock.process.terminal import tolerate_encoding; tolerate_encoding(); print('é ██▓░ ☃')"
    command = [sys.executable, "-X", "utf8=0", "-c", program]
    completed = subprocess.run(command, env={"PYTHONIOENCODING": encoding}, capture_output=True, check=True)
    assert completed.stdout == printed

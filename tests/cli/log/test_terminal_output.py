"""``penstock consume`` on a real terminal, and offsets beyond the end."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Sequence

import pytest

from penstock.client import Log
from tests.server.running import Running

BOMB = b"\x1b]0;owned\x07\x1b[2J \x9b31m\nsecond"
COMMAND = [sys.executable, "-m", "penstock.cli.main", "consume", "t"]


def on_a_terminal(command: Sequence[str]) -> bytes:
    """All that a command sends to its terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(theirs)
    output = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(ours, 1 << 16):
            output += part
    os.close(ours)
    assert process.wait(60) == 0
    assert process.stderr is not None
    process.stderr.close()
    return output


@pytest.mark.parametrize("form", ["text", "payload", "json"])
def test_control_characters_are_shown_on_a_terminal(running: Running, form: str) -> None:
    with Log(running.bound.grpc) as log:
        log.append("t", [BOMB, b"t\xc3\xa9xt"], {"colour": "\x1b[31m"})
    sent = on_a_terminal([*COMMAND, "--rpc", running.bound.grpc, "--format", form])
    assert b"\x1b" not in sent
    assert b"\x07" not in sent
    assert b"\x9b" not in sent
    assert sent.count(b"\r\n") == 2
    if form != "json":
        assert b"\\x1b]0;owned\\x07\\x1b[2J \\x9b31m\\x0asecond\r\n" in sent
        assert "t\u00e9xt".encode() in sent


def test_file_receives_payloads_unchanged(running: Running) -> None:
    with Log(running.bound.grpc) as log:
        log.append("t", [BOMB])
    command = [*COMMAND, "--rpc", running.bound.grpc, "--format", "payload"]
    assert subprocess.run(command, capture_output=True, check=True, timeout=60).stdout == BOMB + b"\n"


def test_consume_rejects_offset_beyond_the_end(running: Running) -> None:
    with Log(running.bound.grpc) as log:
        log.append("t", [b"a", b"b"])
    command = [*COMMAND, "--rpc", running.bound.grpc, "--from"]
    process = subprocess.run([*command, "99999999"], capture_output=True, check=False, timeout=60)
    assert (process.returncode, process.stdout) == (1, b"")
    assert process.stderr == b"penstock: offset 99999999 is beyond the end of t, which is 2\n"
    assert subprocess.run([*command, "2"], capture_output=True, check=True, timeout=60).stdout == b""


def test_follower_reports_that_it_waits_for_an_offset(running: Running) -> None:
    with Log(running.bound.grpc) as log:
        log.append("t", [b"a"])
        command = [*COMMAND, "--rpc", running.bound.grpc, "--follow", "--from", "2", "-n", "1", "--format", "payload"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert process.stdout is not None
            output = process.stderr.readline()
            log.append("t", [b"b", b"c"])
            assert process.stdout.read() == b"c\n"
    assert output == b"offset 2 is beyond the end of t, which is 1; waiting for it\n"

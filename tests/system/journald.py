"""systemd's journald and journalctl for tests, without systemd: Debian's packages, installed on demand if allowed.

journald runs in a mount namespace of its own, where ``/run`` and ``/var/log`` are empty at first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.pipe import wait_until
from tests.debian_packages import install

PROGRAM, WRITER = Path("/lib/systemd/systemd-journald"), Path("/lib/systemd/systemd-journal-remote")
_SETTINGS = {"ReadKMsg": "no", "Audit": "no", "ForwardToWall": "no", "RateLimitIntervalSec": "0"}
_NAMESPACE = """set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mkdir -p /run/systemd/journal /run/systemd/journald.conf.d /run/log/journal
cp "$1" /run/systemd/journald.conf.d/test.conf
echo ready
exec cat
"""


def is_installed() -> bool:
    return PROGRAM.exists() and WRITER.exists()


def install_journald() -> None:
    """Install journald if it is missing; skip the test if it cannot be installed."""
    if not is_installed():
        install("systemd", "systemd-journal-remote")
    if not is_installed() or os.geteuid():
        pytest.skip("there is no journald, or no right to run it")


class Journald:
    """A real journald, which may be killed and started again, and its journal.

    ``is_persistent``: whether its journal is in ``/var/log/journal`` from the start, or in ``/run`` until ``flush``.
    """

    def __init__(self, folder: Path, *, is_persistent: bool = True, **settings: str) -> None:
        install_journald()
        configuration = folder / "journald.conf"
        lines = [f"{key}={value}" for key, value in {**_SETTINGS, **settings}.items()]
        configuration.write_text("\n".join(["[Journal]", *lines, ""]))
        self._namespace = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _NAMESPACE, "sh", str(configuration)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._namespace.stdout is not None
        if self._namespace.stdout.readline() != b"ready\n":
            self._namespace.wait()
            pytest.skip("no mount namespaces are permitted here")
        self.enter = ["nsenter", f"--target={self._namespace.pid}", "--mount", f"--wd={Path.cwd()}"]
        """The beginning of a command that runs in the namespace."""
        self.root = Path(f"/proc/{self._namespace.pid}/root")
        self.persistent_folder = self.root / "var/log/journal"
        if is_persistent:
            self.persistent_folder.mkdir()
            (self.root / "run/systemd/journal/flushed").touch()
        self.program = str(folder / "journalctl")
        """An executable that runs journalctl in the namespace."""
        Path(self.program).write_text(f'#!/bin/sh\nexec {" ".join(self.enter[:-1])} journalctl "$@"\n')
        Path(self.program).chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([*self.enter, str(PROGRAM)], stderr=subprocess.DEVNULL)
        wait_until(lambda: not self._run("--sync").returncode, what="journald answers")

    def kill(self) -> None:
        """Kill journald; datagrams that it has not received yet are lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        self.kill()
        self._namespace.kill()
        self._namespace.communicate()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def send(self, *fields: tuple[str, bytes]) -> None:
        """Send one entry in the native protocol. Raises OSError."""
        data = b"".join(encode_field(name, value) for name, value in fields)
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sender:
            sender.connect(f"{self.root}/run/systemd/journal/socket")
            if len(data) < 1 << 16:
                sender.send(data)
                return
            # More than a datagram carries comes as a sealed file.
            memory = os.memfd_create("entry", os.MFD_ALLOW_SEALING)
            try:
                os.write(memory, data)
                seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
                fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
                socket.send_fds(sender, [b""], [memory])
            finally:
                os.close(memory)

    def write(self, *messages: bytes) -> None:
        """Send messages, and wait until they are in the journal."""
        for message in messages:
            self.send(("MESSAGE", message))
        self.control("--sync")

    def store(self, name: str, export: bytes) -> Path:
        """Let systemd store entries in the export format as a file of the journal; return its path."""
        (machine,) = self.persistent_folder.iterdir()
        path = machine / name
        command = [*self.enter, str(WRITER), f"--output=/{path.relative_to(self.root)}", "-"]
        subprocess.run(command, input=export, capture_output=True, check=True, timeout=60)
        return path

    def export(self) -> bytes:
        """Return all entries in the export format."""
        return self._run("--output=export", "--no-pager").stdout

    def control(self, *options: str) -> str:
        """Run journalctl with options that are not for reading, such as ``--rotate``; return what it writes."""
        completed = self._run(*options)
        assert not completed.returncode, completed
        return completed.stderr.decode()

    def entries(self) -> list[dict[str, Any]]:
        """Return the fields of all entries in the journal; the values are text, or numbers of bytes."""
        text = self._run("--output=json", "--all", "--no-pager").stdout
        return [json.loads(line) for line in text.splitlines()]

    def messages(self) -> list[bytes]:
        """Return the messages of all entries in the journal."""
        return [message_of(entry) for entry in self.entries()]

    def _run(self, *options: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([self.program, *options], capture_output=True, check=False, timeout=60)


def message_of(entry: dict[str, Any]) -> bytes:
    """Return the message of an entry in the form of ``Journald.entries``."""
    message = entry.get("MESSAGE", "")
    if isinstance(message, list) and message and not isinstance(message[0], int):
        message = message[-1]  # of several messages, the last one
    return message.encode() if isinstance(message, str) else bytes(message)


def encode_field(name: str, value: bytes) -> bytes:
    """Return a field of the native protocol, with its length."""
    return name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"

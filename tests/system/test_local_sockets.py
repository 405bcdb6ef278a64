"""A local socket handed over by systemd, then to the successor of a restart and of a killed receiver."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

from penstock.testing.pipe import Pipe, wait_until

ACTIVATE = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.bind(sys.argv[1])
os.dup2(sock.fileno(), 9)
sock.close()
os.dup2(9, 3)
os.close(9)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "host", "LISTEN_PID": str(os.getpid())}
os.execv(sys.argv[2], sys.argv[2:])
"""
"""As systemd's unit of a socket does: it opens the socket, then starts the service with it."""


class LocalSender(threading.Thread):
    """Sends numbered messages and waits while the socket is full; ``sent`` counts what the kernel accepted."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._stopping, self.sent = path, threading.Event(), 0

    def run(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(str(self._path))
            while not self._stopping.wait(0.001):
                sock.send(b"<13>app: %d" % self.sent)
                self.sent += 1

    def stop(self) -> int:
        self._stopping.set()
        self.join()
        return self.sent


def test_local_socket_outlives_receiver_and_supervisor_and_loses_nothing(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("host", "stream")}
    listeners = [
        f'[[listener]]\nname = "{name}"\nprotocol = "unix_{kind}"\npath = "{files[name]}"\nannotate_source = true\n'
        'max_line = "64KiB"\n'
        f'[[listener.handlers]]\ntype = "log"\ntopic = "{name}"\n'
        for name, kind in (("host", "datagram"), ("stream", "stream"))
    ]
    pipe = Pipe(tmp_path)
    pipe.configure("\n".join(listeners) + '[buffer]\nterm_length = "4MiB"\n')
    pipe.launcher = (sys.executable, "-c", ACTIVATE, str(files["host"]))
    try:
        pipe.start()
        assert pipe.endpoints()["listeners"] == {name: [str(path), 0] for name, path in files.items()}
        inode = files["host"].stat().st_ino
        sender = LocalSender(files["host"])
        sender.start()
        try:
            wait_until(lambda: sender.sent > 100, what="the sender is in motion")
            pipe.kill("receiver host")
            restart = [sys.executable, "-m", "penstock.cli.main", "restart", *pipe.options]
            outcome = subprocess.run(restart, capture_output=True, text=True, check=False, timeout=180)
            first_line = outcome.stdout.splitlines()[0]
            assert (outcome.returncode, first_line, outcome.stderr) == (
                0,
                "penstock is restarted, 2 sockets were kept open",
                "",
            )
            before = sender.sent
            wait_until(lambda: sender.sent > before + 100, what="the sender continues on the same socket")
        finally:
            sent = sender.stop()
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(files["stream"]))
            stream.sendall(b"<13>app: one\0<13>app: two\0")
        wait_until(lambda: pipe.counts("host")["accepted"] >= sent, what="all messages are counted")
        wait_until(lambda: pipe.counts("stream")["accepted"] == 2, what="the stream's messages are counted")
        assert pipe.counts("host")["accepted"] == sent
        assert files["host"].stat().st_ino == inode
    finally:
        pipe.stop()

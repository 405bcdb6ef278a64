"""Log lines have time and component; the same warning comes once a minute."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.process.reporting import (
    ATTEMPTS_PER_REPORT,
    REPEAT_INTERVAL_S,
    LineFormatter,
    RepeatFilter,
    configure,
    starting,
)
from tests.server import certificates

STRANGERS = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from penstock.process.reporting import configure
configure("log daemon")
import grpc
server = grpc.server(ThreadPoolExecutor(1))
pair = [Path(name).read_bytes() for name in sys.argv[1:]]
port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
server.start()
for _ in range(5):
    with socket.create_connection(("127.0.0.1", port), 20) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        while stranger.recv(1000):
            pass
server.stop(0)
"""


def test_connections_without_tls_to_grpc_do_not_fill_the_output(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path, "server")
    command = [sys.executable, "-c", STRANGERS, str(pair.key), str(pair.cert)]
    clean = {name: text for name, text in os.environ.items() if name != "GRPC_VERBOSITY"}
    for level, handshakes in (({}, 0), ({"GRPC_VERBOSITY": "INFO"}, 5)):
        done = subprocess.run(command, env=clean | level, check=True, capture_output=True, text=True, timeout=60)
        assert done.stderr.count("Handshake failed") == handshakes, done.stderr


def test_line_has_time_and_component(capsys: pytest.CaptureFixture[str]) -> None:
    configure("receiver events-udp")
    logging.getLogger("penstock.ingest").info("started with %d slots", 8)
    logging.getLogger("penstock.ingest").debug("not shown")
    logging.getLogger("somebody.else").info("not shown")
    logging.getLogger("somebody.else").warning("shown")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "receiver events-udp: started with 8 slots",
        "receiver events-udp: shown",
    ]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)


def test_exception_is_one_line_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    configure("log daemon")
    try:
        raise ValueError("no\ngood")
    except ValueError:
        logging.getLogger("penstock.log").exception("the log was not swept")
    (line,) = capsys.readouterr().err.splitlines()
    assert "log daemon: the log was not swept ValueError: no; good (test_exception" in line


def record(level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord("penstock", level, __file__, 1, text, None, None)


def test_repeated_warning_passes_once_a_minute_with_its_count() -> None:
    now = [0.0]
    limit = RepeatFilter(lambda: now[0])
    passed: list[str] = []
    for second in (0.0, 1.0, REPEAT_INTERVAL_S - 1, REPEAT_INTERVAL_S + 1):
        now[0] = second
        if limit.filter(attempt := record(logging.WARNING, "it hurts")):
            passed.append(LineFormatter("x").format(attempt).partition(": ")[2])
    assert passed == ["it hurts", "it hurts (2 repetitions since the last report)"]
    assert limit.filter(record(logging.WARNING, "here too"))


def test_information_is_never_suppressed() -> None:
    limit = RepeatFilter(lambda: 0.0)
    assert all(limit.filter(record(logging.INFO, "the configuration is reloaded")) for _ in range(3))


@pytest.mark.parametrize("argv", [["x", "1"], ["x", "1", "0"], ["x", "1", str(ATTEMPTS_PER_REPORT)]])
def test_failed_start_is_one_line_and_status_1(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", argv)
    configure("receiver events")
    with pytest.raises(SystemExit) as exit_info, starting("cannot start in /data"):
        raise OSError(errno.ENOSPC, "No space left on device", "/data/x")
    assert exit_info.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "receiver events: cannot start in /data: /data/x: No space left on device: free space there (penstock cleanup)"
    )


def test_start_without_threads_is_one_line_with_the_limits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [""])
    configure("log daemon")
    with pytest.raises(SystemExit), starting("cannot start in /data"):
        raise RuntimeError("can't start new thread")  # as Thread.start raises it
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot start in /data: can't start new thread: allow more processes and threads (ulimit -u," in line


def test_repeated_failed_starts_are_not_all_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("receiver events")
    for attempt in range(1, ATTEMPTS_PER_REPORT):
        monkeypatch.setattr("sys.argv", ["x", "1", str(attempt)])
        with pytest.raises(SystemExit), starting("cannot start"):
            raise OSError(28, "No space left on device")
    assert capsys.readouterr().err == ""


def test_receiver_without_disk_space_logs_one_line(tmp_path: Path) -> None:
    """RLIMIT_FSIZE replaces a full disk."""
    listener = {"name": "events", "protocol": "udp", "handlers": [{"type": "log", "topic": "t"}]}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        task = {"listener": listener, "buffer": {}, "folder": str(tmp_path), "wakes": [], "socket": sock.fileno()}
        process = subprocess.run(
            [
                "sh",
                "-c",
                'ulimit -f 100; exec "$@"',
                "sh",
                sys.executable,
                "-m",
                "penstock.ingest.receiver",
                str(os.getpid()),
            ],
            input=json.dumps(task),
            pass_fds=[sock.fileno()],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    (line,) = process.stderr.splitlines()
    assert f"receiver events: cannot start in {tmp_path}: File too large" in line
    assert process.returncode == 1

"""Senders of the forward protocol into a real pipe: acknowledged messages are in the log after any kill."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgpack
import pytest
from fluent.sender import FluentSender

from penstock.testing.pipe import Pipe, wait_until
from tests.server import certificates
from tests.system.configured_pipe import SMALL, configured_pipe, listener
from tests.system.topic_files import entries

AGENTS = 3
KEY = "a key that both sides know"
FORWARD = 'codec = "forward"'


def listeners(server: certificates.Pair) -> str:
    """Return a listener for all senders, and one with a shared key over TLS."""
    tls = f'shared_key = "{KEY}"', f'tls_cert = "{server.cert}"', f'tls_key = "{server.key}"'
    listeners_with_tls = listener("forward-tls", "tcp", FORWARD, *tls) + listener(
        "documented", "tcp", FORWARD, *tls[1:]
    )
    return SMALL + listener("forward", "tcp", FORWARD) + listeners_with_tls


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> certificates.Pair:
    return certificates.make(tmp_path_factory.mktemp("certificates"), "server")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, server: certificates.Pair) -> Iterator[Pipe]:
    """A pipe for all tests; each test uses a tag of its own."""
    with configured_pipe(tmp_path_factory.mktemp("pipe"), listeners(server)) as pipe:
        yield pipe


def records(pipe: Pipe, tag: str, topic: str = "forward") -> list[Any]:
    """Return the records of ``tag`` in the topic's files."""
    rows = [row for row in entries(pipe, topic) if row["annotations"]["tag"].startswith(tag)]
    return [json.loads(row["payload"]) for row in rows]


def packed(*event_records: Any) -> bytes:
    now = msgpack.ExtType(0, struct.pack(">II", int(time.time()), 5))
    return b"".join(msgpack.packb([now, record]) for record in event_records)


def answer(sock: socket.socket) -> Any:
    """Return the next answer. Raises OSError, and ConnectionResetError at the end of the connection."""
    unpacker = msgpack.Unpacker()
    while True:
        data = sock.recv(65_536)
        if not data:
            raise ConnectionResetError
        unpacker.feed(data)
        for message in unpacker:
            return message


def test_fluent_logger(here: Pipe) -> None:
    host, port = here.address("forward")
    for nanoseconds in (False, True):
        sender = FluentSender("python", host=host, port=port, nanosecond_precision=nanoseconds)
        for number in range(3):
            assert sender.emit("shop", {"log": f"grüße {number}", "deep": {"n": [number, None]}})
        sender.close()
    wait_until(lambda: len(records(here, "python")) == 6)
    assert records(here, "python")[:3] == [{"log": f"grüße {n}", "deep": {"n": [n, None]}} for n in range(3)]
    annotations = [row["annotations"] for row in entries(here, "forward") if row["annotations"]["tag"] == "python.shop"]
    assert len(annotations) == 6
    assert all(each["timestamp"].startswith(time.strftime("%Y-%m-", time.gmtime())) for each in annotations)


def test_acknowledged_chunk_is_in_the_log(here: Pipe) -> None:
    with socket.create_connection(here.address("forward"), timeout=30) as sock:
        for number in range(5):
            sock.sendall(msgpack.packb(["acked", packed({"n": number}), {"chunk": f"c{number}"}]))
            assert answer(sock) == {"ack": f"c{number}"}
            assert records(here, "acked")[-1] == {"n": number}


def test_chunk_is_acknowledged_only_once_the_log_has_it(here: Pipe) -> None:
    with socket.create_connection(here.address("forward"), timeout=1) as sock:
        with here.paused("log daemon"):
            sock.sendall(msgpack.packb(["early", packed({"n": 1}), {"chunk": "c"}]))
            with pytest.raises(TimeoutError):
                answer(sock)
        sock.settimeout(30)
        assert answer(sock) == {"ack": "c"}
    assert records(here, "early") == [{"n": 1}]


def test_shared_key_over_tls(here: Pipe, server: certificates.Pair) -> None:
    context = ssl.create_default_context(cafile=str(server.cert))
    for key in (KEY, "another key"):
        plain = socket.create_connection(here.address("forward-tls"), timeout=30)
        with context.wrap_socket(plain, server_hostname="server") as sock:
            _, options = answer(sock)
            digest = hashlib.sha512(b"salt" + b"me" + options["nonce"] + key.encode()).hexdigest()
            sock.sendall(msgpack.packb(["PING", "me", "salt", digest, "", ""]))
            assert answer(sock)[1] is (key == KEY)
            if key == KEY:
                zipped = gzip.compress(packed({"n": 1}))
                sock.sendall(msgpack.packb(["tls", zipped, {"compressed": "gzip", "chunk": "c"}]))
                assert answer(sock) == {"ack": "c"}
    assert records(here, "tls", "forward-tls") == [{"n": 1}]
    wait_until(lambda: here.counts("forward-tls")["connection_closed.key"] == 1)


def test_documented_program_sends_over_tls(here: Pipe, server: certificates.Pair) -> None:
    text = (Path(__file__).parents[2] / "docs" / "forward.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0]
    _, port = here.address("documented")
    program = program.replace("tls/ca.crt", str(server.cert)).replace("24224", str(port))
    printed = subprocess.run([sys.executable, "-c", program], text=True, check=True, capture_output=True, timeout=60)
    assert printed.stdout == "{'ack': 'bG9naW4tMQ=='}\n"
    assert printed.stdout in text
    assert records(here, "app.login", "documented") == [{"user": "ann"}]
    with socket.create_connection(here.address("documented"), timeout=30) as sender:
        sender.sendall(packed({"n": 1}))
        wait_until(lambda: here.counts("documented")["connection_closed.tls"] == 1)


def test_events_of_fluent_bit(here: Pipe) -> None:
    """Packed events with metadata next to their times, with the options of Fluent Bit 2.1 and later."""
    now = msgpack.ExtType(0, struct.pack(">II", int(time.time()), 5))
    events = b"".join(msgpack.packb([[now, {}], {"log": f"line {n}", "stream": "stdout"}]) for n in range(3))
    with socket.create_connection(here.address("forward"), timeout=30) as sock:
        sock.sendall(msgpack.packb(["bit.var.log", events, {"size": 3, "chunk": "0a1b", "fluent_signal": 0}]))
        assert answer(sock) == {"ack": "0a1b"}
    assert [each["log"] for each in records(here, "bit.")] == ["line 0", "line 1", "line 2"]


def test_records_that_cannot_be_stored_are_counted(here: Pipe) -> None:
    bomb = msgpack.packb(["t", gzip.compress(bytes(80 << 20)), {"compressed": "gzip", "chunk": "c"}])
    for data in (b"GET / HTTP/1.1\r\n\r\n", bomb):
        with socket.create_connection(here.address("forward"), timeout=30) as sock:
            sock.sendall(data)
            with pytest.raises(ConnectionResetError):
                answer(sock)

    def is_counted() -> bool:
        counts = here.counts("forward")
        refused = sum(number for name, number in counts.items() if name.startswith("refused."))
        return (counts["connection_closed.protocol"], refused) == (2, 2)

    wait_until(is_counted)
    assert here.settled()["unaccounted"] == 0


class Agent(threading.Thread):
    """A sender that repeats each chunk until it is acknowledged, like Fluentd and Fluent Bit."""

    def __init__(self, pipe: Pipe, first: int) -> None:
        super().__init__(daemon=True)
        self._pipe, self._first, self._stopping = pipe, first, threading.Event()
        self._sock: socket.socket | None = None
        self.acknowledged: list[int] = []

    def run(self) -> None:
        for number in count(self._first, AGENTS):
            request = msgpack.packb(["killed", packed({"n": number}), {"chunk": str(number)}])
            while not self._sent(request, number):
                if self._stopping.wait(0.05):
                    return
            self.acknowledged.append(number)
            if self._stopping.is_set():
                return

    def _sent(self, request: bytes, number: int) -> bool:
        try:
            self._sock = self._sock or socket.create_connection(self._pipe.address("forward"), timeout=5)
            self._sock.sendall(request)
            return bool(answer(self._sock) == {"ack": str(number)})
        except (OSError, KeyError):
            if self._sock:
                self._sock.close()
            self._sock = None
            return False

    def end(self) -> list[int]:
        self._stopping.set()
        self.join(60)
        return self.acknowledged


def kill_and_check(pipe: Pipe, kills: int) -> None:
    """Kill processes under load: acknowledged records are in the log, and repeated records have the same uuid."""
    agents = [Agent(pipe, number) for number in range(AGENTS)]
    for agent in agents:
        agent.start()
    for kill in range(kills):
        sent = sum(len(agent.acknowledged) for agent in agents)
        wait_until(lambda sent=sent: sum(len(each.acknowledged) for each in agents) > sent + 10, 120)  # type: ignore[misc]
        with contextlib.suppress(ProcessLookupError):
            pipe.signal(("receiver forward", "log daemon")[kill % 2], signal.SIGKILL)
    acknowledged = {number for agent in agents for number in agent.end()}
    assert pipe.settled()["unaccounted"] == 0
    rows = [row for row in entries(pipe, "forward") if row["annotations"]["tag"] == "killed"]
    uuids = {(json.loads(row["payload"])["n"], row["annotations"]["uuid"]) for row in rows}
    assert acknowledged <= {number for number, _ in uuids}, "acknowledged, and lost"
    assert len(uuids) == len({number for number, _ in uuids}), "a repeat that nobody can know"


@pytest.mark.survives("requests", "SIGKILL")
def test_acknowledged_records_survive_kills(here: Pipe) -> None:
    kill_and_check(here, 4)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_acknowledged_records_survive_many_kills(tmp_path: Path, server: certificates.Pair) -> None:
    with configured_pipe(tmp_path, listeners(server)) as pipe:
        kill_and_check(pipe, 30)

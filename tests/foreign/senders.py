"""Senders and readers in Go, Rust, Node and Java: built from this folder, run against a pipe through a recording proxy.

    python -m tests.foreign.senders FOLDER

builds them in FOLDER, runs each against a real pipe and writes what they sent to ``recorded.json.xz``. The programs
need ``go``, ``cargo``, ``npm`` and ``mvn``; a language whose tool is missing keeps its recorded bytes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import lzma
import selectors
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.testing.pipe import Pipe, free_ports, wait_until
from tests.system.configured_pipe import SMALL, listener
from tests.system.topic_files import entries

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json.xz"
TEXTS = ("first message", "second: with a colon", "third one, grüße")
LISTENERS = {
    "syslog udp": ("udp", 'codec = "syslog"'),
    "syslog tcp": ("tcp", 'codec = "syslog"'),
    "gelf udp": ("udp", 'codec = "gelf"', 'defrag = { max_size = "16KiB", expire_time = "1s" }'),
    "gelf tcp": ("tcp", 'codec = "gelf"'),
    "forward tcp": ("tcp", 'codec = "forward"'),
    "web http": ("http", 'max_line = "64KiB"'),
    "otlp grpc": ("otlp_grpc", 'max_line = "64KiB"'),
}
SENDERS = {
    "go": (
        *("syslog udp", "syslog tcp", "gelf udp", "gelf tcp", "forward tcp", "hec http", "loki http", "bulk http"),
        *("otlp http", "otlp grpc"),
    ),
    "rust": (
        *("syslog udp", "syslog udp, RFC 5424", "syslog tcp", "syslog tcp, RFC 5424", "gelf udp", "gelf tcp"),
        *("forward tcp", "hec http", "loki http", "bulk http", "otlp http", "otlp grpc"),
    ),
    "node": (
        *("syslog udp", "syslog tcp", "gelf udp", "gelf tcp", "forward tcp", "hec http", "loki http", "bulk http"),
        *("otlp http", "otlp grpc"),
    ),
    "java": (
        *("syslog udp", "syslog udp, RFC 5424", "syslog tcp", "syslog tcp, RFC 5425", "gelf udp", "gelf tcp"),
        *("forward tcp", "hec http", "loki http", "bulk http", "otlp http", "otlp grpc"),
    ),
}
"""Kinds of each language's program; the words before a comma name the transport."""
READERS = ("kafka", "flight")
BUILDS = {
    "go": ("go", "go mod tidy && go build -o senders ."),
    "rust": ("cargo", "cargo build --quiet"),
    "node": ("npm", "npm install --silent --ignore-scripts"),
    "java": (
        "mvn",
        "mvn -q dependency:build-classpath -Dmdep.outputFile=classpath && javac -cp @classpath *.java",
    ),
}
JAVA_ARROW_OPTION = "--add-opens=java.base/java.nio=ALL-UNNAMED"
BUILD_TIMEOUT_S = 1800
RUN_TIMEOUT_S = 60
PIECE = 1 << 16


def listener_of(kind: str) -> str:
    """Return the listener that a sender of this kind uses."""
    transport = kind.partition(",")[0]
    return "web http" if transport.endswith("http") else transport


def built(language: str, folder: Path) -> list[str] | None:
    """Build a language's program in ``folder`` and return its command; None if its tool is missing."""
    tool, script = BUILDS[language]
    if shutil.which(tool) is None:
        return None
    home = folder / language
    shutil.copytree(HERE / language, home, dirs_exist_ok=True)
    subprocess.run(["bash", "-c", script], cwd=home, check=True, timeout=BUILD_TIMEOUT_S)
    return {
        "go": [str(home / "senders")],
        "rust": [str(home / "target" / "debug" / "senders")],
        "node": ["node", str(home / "senders.js")],
        "java": [
            "java",
            JAVA_ARROW_OPTION,
            "-cp",
            f"{home}:{(home / 'classpath').read_text()}" if language == "java" else "",
            "Senders",
        ],
    }[language]


@contextmanager
def running_pipe(folder: Path) -> Iterator[Pipe]:
    """Run a pipe with a listener of each kind, and Kafka's protocol; stop it in the end."""
    (kafka,) = free_ports(1)
    pipe = Pipe(folder, f"log.kafka=127.0.0.1:{kafka}")
    pipe.configure(SMALL + "".join(listener(name.replace(" ", "-"), *keys) for name, keys in LISTENERS.items()))
    try:
        pipe.start()
        yield pipe
    finally:
        pipe.stop()


@dataclass
class Recorder:
    """A proxy on a free port that passes everything to ``target`` and keeps what the client sent."""

    target: tuple[str, int]
    datagrams: bool
    pieces: list[bytearray] = field(default_factory=list)
    """Datagrams, or the bytes of each connection."""

    def __post_init__(self) -> None:
        self._socket = socket.socket(type=socket.SOCK_DGRAM if self.datagrams else socket.SOCK_STREAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        if not self.datagrams:
            self._socket.listen()
        threading.Thread(target=self._pass_datagrams if self.datagrams else self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _pass_datagrams(self) -> None:
        while True:
            datagram = self._socket.recv(PIECE)
            self.pieces.append(bytearray(datagram))
            self._socket.sendto(datagram, self.target)

    def _accept(self) -> None:
        while True:
            client, _ = self._socket.accept()
            sent = bytearray()
            self.pieces.append(sent)
            server = socket.create_connection(self.target)
            threading.Thread(target=self._pass_bytes, args=(client, server, sent), daemon=True).start()

    @staticmethod
    def _pass_bytes(client: socket.socket, server: socket.socket, sent: bytearray) -> None:
        other = {client: server, server: client}
        with selectors.DefaultSelector() as selector, client, server:
            for side in other:
                selector.register(side, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    assert isinstance(key.fileobj, socket.socket)
                    piece = key.fileobj.recv(PIECE)
                    if key.fileobj is client:
                        sent += piece
                    with contextlib.suppress(OSError):  # the other side may have closed already
                        if piece:
                            other[key.fileobj].sendall(piece)
                        else:
                            other[key.fileobj].shutdown(socket.SHUT_WR)
                    if not piece:
                        selector.unregister(key.fileobj)


def run(command: list[str], kind: str, address: tuple[str, int], language: str) -> str:
    """Run a program of ``language`` and return what it printed."""
    host, port = address
    target = [f"{host}:{port}"] if language == "go" else [host, str(port)]
    done = subprocess.run([*command, kind, *target], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{language}, {kind}: {done.stderr[-2000:]}"
    return done.stdout


def recorded_run(pipe: Pipe, command: list[str], language: str, kind: str) -> list[bytes]:
    """Run a sender through the proxy until its three messages are in the log; return what it sent."""
    name = listener_of(kind).replace(" ", "-")
    recorder = Recorder(pipe.address(name), datagrams=kind.partition(",")[0].endswith("udp"))
    before = len(entries(pipe, name))
    run(command, kind, ("127.0.0.1", recorder.port), language)
    wait_until(lambda: len(entries(pipe, name)) >= before + len(TEXTS), what=f"the messages of {language}, {kind}")
    recorder.close()
    return [bytes(piece) for piece in recorder.pieces if piece]


def kafka_address(pipe: Pipe) -> tuple[str, int]:
    """Return where the pipe serves Kafka's protocol."""
    host, _, port = pipe.overrides[-1].partition("=")[2].rpartition(":")
    return host, int(port)


def read_by(pipe: Pipe, command: list[str], language: str, protocol: str) -> list[str]:
    """Return the messages of the topic ``shop`` that a program of ``language`` reads."""
    host, _, port = pipe.flight.rpartition(":")
    address = (host, int(port)) if protocol == "flight" else kafka_address(pipe)
    printed = run(command, f"read {protocol}", address, language).splitlines()
    return [line for line in printed if line in TEXTS]  # libraries print about themselves too


def main(folder: Path) -> None:
    """Record all senders whose language's tool is installed."""
    old = json.loads(lzma.decompress(RECORDED.read_bytes())) if RECORDED.exists() else []
    with running_pipe(folder) as pipe:
        for language, kinds in SENDERS.items():
            command = built(language, folder)
            if command is None:
                continue
            old = [row for row in old if row["language"] != language]
            for kind in kinds:
                print(f"{language}, {kind}", flush=True)
                pieces = recorded_run(pipe, command, language, kind)
                texts = [base64.b64encode(piece).decode() for piece in pieces]
                old.append({"language": language, "kind": kind, "pieces": texts})
    RECORDED.write_bytes(lzma.compress(json.dumps(old).encode()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

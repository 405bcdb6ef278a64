"""TCP senders that speak TLS: who is let in, what arrives, what is counted."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ConfigError, ListenerConfig
from penstock.counts import open_books
from penstock.ingest import connections
from penstock.ingest.sockets import open_socket
from penstock.ingest.tcp import HANDSHAKE_TIMEOUT_S
from tests.ingest.test_tcp import LISTENER, Receiving
from tests.server import certificates
from tests.server.certificates import Pair


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """``server``, an authority ``ca`` with ``a.example.com`` and ``b.other.org``, and a ``stranger``."""
    folder = tmp_path_factory.mktemp("certificates")
    made = {name: certificates.make(folder, name) for name in ("server", "ca", "stranger")}
    names = ("a.example.com", "b.other.org")
    return made | {name: certificates.make(folder, name, issuer=made["ca"]) for name in names}


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with open_socket(LISTENER) as bound:
        yield bound


def receiving(folder: Path, sock: socket.socket, pairs: dict[str, Pair], **more: Any) -> Receiving:
    server = pairs["server"]
    settings = {"codec": "syslog", "tls_cert": server.cert, "tls_key": server.key, **more}
    return Receiving(folder, sock, **settings)


class Sender:
    """A sender's side of TLS, in the same thread as the receiver."""

    def __init__(self, receiving: Receiving, sock: socket.socket, pairs: dict[str, Pair], name: str | None = None):
        self._receiving = receiving
        context = ssl.create_default_context(cafile=str(pairs["server"].cert))
        if name is not None:
            context.load_cert_chain(pairs[name].cert, pairs[name].key)
        plain = socket.create_connection(sock.getsockname())
        plain.setblocking(False)
        self.sock = context.wrap_socket(plain, server_hostname="server", do_handshake_on_connect=False)
        self._going(self.sock.do_handshake)

    def send(self, data: bytes) -> None:
        while data:
            sent = 0
            with contextlib.suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
                sent = self.sock.send(data)
            data = data[sent:]
            self._receiving.rounds(2)

    def send_until_refused(self, data: bytes) -> None:
        """Raises OSError once the receiver has refused."""
        for _ in range(50):
            self.send(data)
            with contextlib.suppress(ssl.SSLWantReadError):
                if not self.sock.recv(1):
                    raise ConnectionResetError

    def _going(self, step: Any) -> None:
        for _ in range(50):
            self._receiving.rounds(2)
            try:
                return step()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                continue
        raise AssertionError("the handshake does not end")

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()
        self._receiving.rounds()


def test_messages_over_tls_are_what_they_are_without(
    tmp_path: Path, sock: socket.socket, pairs: dict[str, Pair]
) -> None:
    here = receiving(tmp_path, sock, pairs)
    large = b"<14>" + b"x" * 1500
    with Sender(here, sock, pairs) as sender:
        sender.send(b"7 <14>one7 <14>two")
        sender.send(b"".join(b"%d %b" % (len(large), large) for _ in range(100)))
    payloads = here.life.payloads()
    assert payloads[:2] == [b"<14>one", b"<14>two"]
    assert payloads[2:] == [large] * 100
    assert open_books(here.life.totals()) == []


@pytest.mark.parametrize("lines", [0, 1, 500])
def test_end_of_tls_ends_the_connection_while_tcp_stays_open(
    tmp_path: Path, sock: socket.socket, pairs: dict[str, Pair], lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """syslog-ng/syslog-ng#2703, #2811: the last message waited for the end of TCP, and the sender for an answer."""
    monkeypatch.setattr(connections, "LINES_PER_TURN", 100)
    sent = b"<14>one\n" * lines + b"<14>last" * bool(lines)
    here = receiving(tmp_path, sock, pairs)
    with Sender(here, sock, pairs) as sender:
        sender.sock.setblocking(True)
        sender.sock.settimeout(20)
        with ThreadPoolExecutor(1) as pool:
            end = pool.submit(lambda: (sender.sock.sendall(sent), sender.sock.unwrap()))
            # ``unwrap`` returns once the receiver has answered.
            while not end.done():
                here.rounds(1)
        end.result()
        assert here.life.payloads() == sent.splitlines()
    assert open_books(here.life.totals()) == []


def test_a_sender_that_never_reads_has_nothing_to_read(
    tmp_path: Path, sock: socket.socket, pairs: dict[str, Pair]
) -> None:
    here = receiving(tmp_path, sock, pairs)
    with Sender(here, sock, pairs) as sender:
        sender.send(b"7 <14>one")
        here.rounds()
        with socket.socket(fileno=os.dup(sender.sock.fileno())) as plain, pytest.raises(BlockingIOError):
            plain.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    assert here.life.payloads() == [b"<14>one"]


def test_sender_without_tls_is_refused_and_counted(tmp_path: Path, sock: socket.socket, pairs: dict[str, Pair]) -> None:
    here = receiving(tmp_path, sock, pairs)
    with socket.create_connection(sock.getsockname()) as plain:
        plain.sendall(b"<14>in clear\n")
        here.rounds()
        plain.settimeout(2)
        with contextlib.suppress(ConnectionResetError):
            while plain.recv(1000):
                continue
    here.rounds()
    assert (here.life.payloads(), here.life.totals()["connection_closed.tls"]) == ([], 1)


def test_a_handshake_that_does_not_go_on_is_given_up(
    tmp_path: Path, sock: socket.socket, pairs: dict[str, Pair]
) -> None:
    here = receiving(tmp_path, sock, pairs)
    with socket.create_connection(sock.getsockname()):
        here.rounds()
        here.receiver.tick()
        assert here.life.totals()["connection_closed.tls"] == 0
        here.clock.advance(HANDSHAKE_TIMEOUT_S + 1)
        here.receiver.tick()
    assert here.life.totals()["connection_closed.tls"] == 1


def test_senders_need_a_certificate_if_required(tmp_path: Path, sock: socket.socket, pairs: dict[str, Pair]) -> None:
    here = receiving(tmp_path, sock, pairs, client_ca=pairs["ca"].cert, client_names=("*.example.com",))
    with Sender(here, sock, pairs, "a.example.com") as permitted:
        permitted.send(b"<14>known\n")
    for name in (None, "stranger", "b.other.org"):
        with pytest.raises(OSError), Sender(here, sock, pairs, name) as unknown:  # noqa: PT011  each in its own way
            unknown.send_until_refused(b"<14>unknown\n")
    totals = here.life.totals()
    assert (totals["connection_closed.tls"], totals["connection_closed.name"]) == (2, 1)
    (row,) = here.life.rows()
    assert row["payload"] == b"<14>known"
    assert ("certificate_name", "a.example.com") in row["annotations"]


def test_renewed_files_are_taken_while_it_runs(tmp_path: Path, sock: socket.socket, pairs: dict[str, Pair]) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(pairs["stranger"].cert, cert), shutil.copy(pairs["stranger"].key, key)
    here = receiving(tmp_path, sock, pairs, tls_cert=cert, tls_key=key)
    with pytest.raises(ssl.SSLCertVerificationError):
        Sender(here, sock, pairs)
    for name, path in (("cert", cert), ("key", key)):
        shutil.copy(getattr(pairs["server"], name), tmp_path / "new")
        os.replace(tmp_path / "new", path)
    here.receiver.tick()
    with Sender(here, sock, pairs) as sender:
        sender.send(b"<14>renewed\n")
    assert here.life.payloads() == [b"<14>renewed"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"tls_cert": "a.pem"}, "tls_cert and tls_key need each other"),
        ({"client_ca": "a.pem"}, "client_ca needs tls_cert and tls_key"),
        ({"tls_cert": "a", "tls_key": "b", "client_names": ["x"]}, "client_names needs client_ca"),
        ({"tls_cert": "a", "tls_key": "b", "protocol": "udp"}, "tls_cert is for tcp listeners only"),
    ],
)
def test_keys_that_lack_others_stop_the_start(more: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ListenerConfig.model_validate({"name": "a", "protocol": "tcp", **more})


def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path, pairs: dict[str, Pair]) -> None:
    listener = LISTENER.model_copy(update={"tls_cert": pairs["server"].cert, "tls_key": pairs["ca"].key})
    with pytest.raises(ConfigError, match=r"listener.lines.tls_cert: cannot be used with tls_key"):
        listener.check_tls("lines")

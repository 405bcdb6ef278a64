"""Connections without a call: silent ones, ones that stop after TLS or HTTP/2's preface, and ones that only ping."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
import time
from enum import StrEnum
from typing import Self

from penstock.process.kernel import raise_file_limit

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS_ACK = bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])
_PING = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0, *range(8)])
PING_INTERVAL_S = 1.0


class Kind(StrEnum):
    """Bytes that a connection sends."""

    NOTHING = "nothing"
    TLS = "tls"
    PREFACE = "preface"
    PINGS = "pings"


class IdleConnections:
    """``count`` connections to a port of 127.0.0.1, from ``addresses`` of the network 127.0.0.0/8; with ``persist`` a
    closed one is opened again at once.
    """

    def __init__(
        self, port: int, count: int, kind: Kind, *, tls: bool = False, persist: bool = False, addresses: int = 1
    ) -> None:
        raise_file_limit()
        self._port, self._count, self._kind, self._persist = port, count, kind, persist
        self._hosts = itertools.cycle([f"127.0.0.{number}" for number in range(1, addresses + 1)])
        self._tls = ssl.create_default_context() if tls else None
        if self._tls:
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
            self._tls.set_alpn_protocols(["h2"])
        self._sockets: list[socket.socket] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve_sockets, daemon=True)

    def __enter__(self) -> Self:
        for _ in range(self._count):
            self._open()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(30)
        for sock in self._sockets:
            sock.close()

    def _open(self) -> None:
        with contextlib.suppress(OSError):  # the server may refuse it
            sock = socket.create_connection(("127.0.0.1", self._port), 5, (next(self._hosts), 0))
            self._sockets.append(sock)
            if self._tls and self._kind is not Kind.NOTHING:
                self._sockets[-1] = sock = self._tls.wrap_socket(sock)
            if self._kind in (Kind.PREFACE, Kind.PINGS):
                sock.sendall(_PREFACE + (_SETTINGS + _SETTINGS_ACK if self._kind is Kind.PINGS else b""))
            sock.setblocking(False)

    def _serve_sockets(self) -> None:
        """Read what the server sends, ping, and open closed connections again."""
        next_ping_s = 0.0
        while not self._ending.wait(0.01):
            pings, now = self._kind is Kind.PINGS and time.monotonic() > next_ping_s, time.monotonic()
            if pings:
                next_ping_s = now + PING_INTERVAL_S
            for sock in list(self._sockets):
                if _is_closed(sock, _PING if pings else b""):
                    self._sockets.remove(sock)
                    sock.close()
                    if self._persist:
                        self._open()


def _is_closed(sock: socket.socket, message: bytes) -> bool:
    try:
        if message:
            sock.sendall(message)
        return not sock.recv(1 << 16)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True

"""Senders of messages over UDP and TCP, for programs that fire and forget.

Both count what they sent, so that what the network loses can be known too: post ``counts`` as tier
``client``.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from penstock.counts import Counts
from penstock.wire.fragments import fragment
from penstock.wire.header import LAST_VERSION


class Sender:
    """A connected socket and its ``counts``: messages, bytes, and datagrams or lines, as handed to the kernel."""

    def __init__(self, sock: socket.socket) -> None:
        self.counts = Counts()
        self._sock = sock

    def close(self) -> None:
        """Close the socket; what was sent goes on its way."""
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class UdpSender(Sender):
    """Sends to a plog listener: unboxed where that says everything, else as version 0 fragments.

    Datagrams carry at most ``fragment_size`` bytes of message (header and tags come on top).
    """

    def __init__(self, host: str, port: int, *, fragment_size: int = 1400) -> None:
        super().__init__(_udp_socket(host, port))
        self._fragment_size = fragment_size
        self._next_id = 0

    def send(self, payload: bytes, tags: Sequence[str] = ()) -> None:
        """Send one message. Raises ValueError when it has no place in 65,535 fragments, OSError as sockets do."""
        if not tags and 0 < len(payload) <= self._fragment_size and payload[0] > LAST_VERSION:
            datagrams = [payload]
        else:
            datagrams = fragment(payload, self._next_id, tags=tags, fragment_size=self._fragment_size)
            self._next_id += 1
        for datagram in datagrams:
            self._send_datagram(datagram)
        self.counts["messages"] += 1
        self.counts["bytes"] += len(payload)

    def send_many(self, payloads: Iterable[bytes], tags: Sequence[str] = ()) -> None:
        """Send many messages with the same tags."""
        for payload in payloads:
            self.send(payload, tags)

    def _send_datagram(self, datagram: bytes) -> None:
        try:
            self._sock.send(datagram)
        except ConnectionRefusedError:
            # The kernel tells of an earlier datagram that nobody listened; this one was not sent yet.
            self._sock.send(datagram)
        self.counts["datagrams"] += 1


class TcpSender(Sender):
    """Sends lines to a TCP listener. A message must hold no newline: it would become two."""

    def __init__(self, host: str, port: int, *, timeout: float | None = 10.0) -> None:
        super().__init__(socket.create_connection((host, port), timeout))

    def send(self, payload: bytes) -> None:
        """Send one line. Raises ValueError for what a line cannot carry as it is, OSError as sockets do."""
        self.send_many((payload,))

    def send_many(self, payloads: Iterable[bytes]) -> None:
        """Send many lines, all or none of them checked beforehand."""
        lines = list(payloads)
        for line in lines:
            if b"\n" in line or line.endswith(b"\r") or line.startswith(b"\0"):
                raise ValueError("a line holds no newline, ends with no \\r and begins with no \\0")
        if lines:
            self._sock.sendall(b"\n".join([*lines, b""]))
            self.counts.update(lines=len(lines), messages=len(lines), bytes=sum(map(len, lines)))


def _udp_socket(host: str, port: int) -> socket.socket:
    """A UDP socket connected to the first address of ``host`` that works."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock

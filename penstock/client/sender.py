"""Senders of messages over UDP and TCP, which count everything they send.

If every sender of a listener has a ``LedgerReport``, the balance also shows what the network lost.
"""

from __future__ import annotations

import errno
import socket
import ssl
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Self

from penstock.client.send_many import MOST, DatagramBatch
from penstock.counts import Counts
from penstock.process.ledger_posts import LedgerPosts
from penstock.wire.plog.cutting import fragment
from penstock.wire.plog.header import LAST_VERSION

REPORT_EVERY = 10.0
"""Seconds between two reports of a sender that keeps sending."""
_LINES = 10_000


class LedgerReport:
    """The address that senders to ``listener`` report to: the daemon's HTTP address ``http`` (``host:port`` or URL).

    ``token`` is the daemon's bearer token, if it requires one; ``context`` holds the trusted authorities for TLS.
    One report may serve many senders.
    """

    def __init__(
        self,
        http: str,
        listener: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._posts = LedgerPosts(http, token=token, context=context)
        self._listener, self._timeout = listener, timeout

    def post(self, sender: str, version: int, counts: Mapping[str, int]) -> None:
        """Post the ``counts`` over the life of ``sender``: ``datagrams`` or ``lines``, ``messages``.

        The highest ``version`` counts, so a lost or repeated report changes nothing. Raises ReportFailed.
        """
        document = {
            "tier": "client",
            "listener": self._listener,
            "sender": sender,
            "version": version,
            "counts": dict(counts),
        }
        self._posts.post(document, self._timeout)


class Sender:
    """A connected socket and its ``counts``: messages, bytes, and datagrams or lines, as handed to the kernel.

    With a ``report``, the counts are posted to the ledger every ten seconds of sending and on close. Not thread-safe.
    """

    def __init__(self, sock: socket.socket, report: LedgerReport | None = None) -> None:
        self.counts = Counts()
        self._sock, self._report = sock, report
        self._id, self._version = str(uuid.uuid4()), 0
        self._posted = time.monotonic()

    def close(self) -> None:
        """Close the socket; the kernel still delivers what it holds. Raises ReportFailed if the ledger rejects the
        report.
        """
        # Order: the socket first, so that it is closed even if the ledger rejects the report.
        self._sock.close()
        if self._report is not None and self.counts:
            self.post()

    def post(self) -> None:
        """Report the counts now. Raises ReportFailed, and ValueError without a ``report``."""
        if self._report is None:
            raise ValueError("this sender has no report")
        self._posted, self._version = time.monotonic(), self._version + 1
        self._report.post(self._id, self._version, {str(name): count for name, count in self.counts.items()})

    def _sent(self, **counts: int) -> None:
        self.counts.absorb(counts)
        if self._report is not None and time.monotonic() - self._posted > REPORT_EVERY:
            self.post()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class UdpSender(Sender):
    """Sends to a plog listener: unboxed if the message allows it, otherwise as version 0 fragments.

    A datagram carries at most ``fragment_size`` bytes of message, plus header and tags. The ids of fragmented
    messages begin with ``first_id`` and increase by one.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        fragment_size: int = 1400,
        first_id: int = 0,
        report: LedgerReport | None = None,
    ) -> None:
        super().__init__(udp_socket(host, port), report)
        self._fragment_size = fragment_size
        self._next_id = first_id

    def send(self, payload: bytes, tags: Sequence[str] = ()) -> None:
        """Send one message. Raises ValueError if it does not fit into 65,535 fragments, OSError as sockets do."""
        self.send_many((payload,), tags)

    def send_many(self, payloads: Iterable[bytes], tags: Sequence[str] = ()) -> None:
        """Send many messages with the same tags, many datagrams per system call."""
        waiting: list[bytes] = []
        messages = size = 0
        for payload in payloads:
            waiting += self._datagrams(payload, tags)
            messages, size = messages + 1, size + len(payload)
            if len(waiting) >= MOST:
                self._send(waiting, messages, size)
                waiting, messages, size = [], 0, 0
        self._send(waiting, messages, size)

    @property
    def is_refused(self) -> bool:
        """Whether the other machine has reported since the last send that its port is closed: datagrams are lost.

        A machine on the network may report it later, or never.
        """
        return self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED

    def _datagrams(self, payload: bytes, tags: Sequence[str]) -> list[bytes]:
        # An unboxed message has no header: its first byte must not look like a version of plog's header.
        if not tags and 0 < len(payload) <= self._fragment_size and payload[0] > LAST_VERSION:
            return [payload]
        parts = fragment(payload, self._next_id, tags=tags, fragment_size=self._fragment_size)
        self._next_id += 1
        return parts

    def _send(self, datagrams: list[bytes], messages: int, size: int) -> None:
        if datagrams:
            DatagramBatch.from_datagrams(datagrams).send(self._sock)
            self._sent(messages=messages, datagrams=len(datagrams), bytes=size)


class TcpSender(Sender):
    """Sends lines to a TCP listener. A message must not contain a newline: it would become two."""

    def __init__(
        self, host: str, port: int, *, timeout: float | None = 10.0, report: LedgerReport | None = None
    ) -> None:
        super().__init__(socket.create_connection((host, port), timeout), report)

    def send(self, payload: bytes) -> None:
        """Send one line. Raises ValueError for a payload that a line cannot carry unchanged, OSError as sockets do."""
        self.send_many((payload,))

    def send_many(self, payloads: Iterable[bytes]) -> None:
        """Send many lines. Each group of ten thousand is checked before any line of it is sent."""
        remaining_lines = iter(payloads)
        while lines := list(islice(remaining_lines, _LINES)):
            for line in lines:
                if b"\n" in line or line.endswith(b"\r") or line.startswith(b"\0"):
                    raise ValueError("a line holds no newline, ends with no \\r and begins with no \\0")
            self._sock.sendall(b"\n".join([*lines, b""]))
            self._sent(lines=len(lines), messages=len(lines), bytes=sum(map(len, lines)))


def udp_socket(host: str, port: int) -> socket.socket:
    """Return a UDP socket connected to the first address of ``host``. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock

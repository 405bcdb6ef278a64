"""TLS of a listener's senders (RFC 5425): handshakes, admission by certificate name, and reading.

A module of its own: a receiver without TLS does not load OpenSSL.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, cast

from penstock.config import ListenerConfig
from penstock.config.keys.security.renewed_tls import RenewedContext

RECORD_BYTES = 16 << 10
"""Maximum size of a TLS record: a read with that much room leaves nothing in OpenSSL's buffer."""
MAX_NAME_LENGTH = 253
"""Limit: characters of a stored name, the maximum of a DNS name."""


class ListenerTls:
    """TLS settings of a listener, reloaded when its files change. Raises Unusable for unusable files."""

    def __init__(self, listener: ListenerConfig) -> None:
        self._listener = listener
        paths = (listener.tls_cert, listener.tls_key, listener.client_ca)
        self.context = RenewedContext(self._new_context, paths)

    def name_of(self, tls: ssl.SSLObject | ssl.SSLSocket | None) -> str | None:
        """Return the name in a client's certificate, "" if none is required; None if the client is refused."""
        return admitted_name(names_of(tls) if tls else [], self._listener)

    def refresh(self) -> None:
        """Reload renewed files, or report that they are unusable, even if no sender connects."""
        self.context.current()

    def _new_context(self) -> ssl.SSLContext:
        context = self._listener.tls_context()
        assert context is not None, "a listener without tls_cert has no TLS"
        return context


class TlsStreams(ListenerTls):
    """TLS of connections that asyncio reads; calls ``count_refusal`` for each without a handshake."""

    def __init__(self, listener: ListenerConfig, count_refusal: Callable[[str], None]) -> None:
        class CountedHandshake(ssl.SSLObject):
            # asyncio tells nobody about a handshake that fails, and the sender sees only that the connection ends.
            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError:
                    count_refusal("tls")
                    raise

        self._object_class = CountedHandshake
        super().__init__(listener)

    def _new_context(self) -> ssl.SSLContext:
        context = super()._new_context()
        context.sslobject_class = self._object_class
        return context


class TlsSockets(ListenerTls):
    """TLS of sockets that this process accepts and reads itself."""

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        """Return ``sock`` wrapped, before its handshake. Raises OSError."""
        return self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def continue_handshake(self, sock: socket.socket) -> tuple[str | None, str]:
        """Continue a handshake; return the certificate's name, None if incomplete, and the reason for refusal.

        The name is "" if the sender showed no certificate; the reason is "" unless the connection must be closed.
        """
        assert isinstance(sock, ssl.SSLSocket), "it went through wrap"
        try:
            sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None, ""
        except OSError:
            return None, "tls"
        name = self.name_of(sock)
        return name, "name" if name is None else ""

    def receive(self, sock: socket.socket, room: memoryview) -> tuple[int, bool]:
        """Read the available records; return their size, and whether the sender has ended.

        Raises BlockingIOError if there are none, else OSError.
        """
        received, has_ended = 0, False
        # Order: read until OpenSSL is empty; select() does not see bytes that OpenSSL has buffered.
        while not received or len(room) - received >= RECORD_BYTES:
            try:
                size = sock.recv_into(room[received:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not received:
                    raise BlockingIOError from None
                break
            except OSError:
                if not received:
                    raise
                break
            if not size:
                has_ended = True
                break
            received += size
        return received, has_ended

    def answer_end(self, sock: socket.socket) -> None:
        """Answer the sender's close_notify with one, as RFC 5425 demands: it may wait for that."""
        with contextlib.suppress(OSError, ValueError):
            # It does not wait: the sender's one has been read. A sender that has reset the connection hears nothing.
            cast("ssl.SSLSocket", sock).unwrap()

    def _new_context(self) -> ssl.SSLContext:
        context = super()._new_context()
        # Workaround: a sender that closes without reading its session tickets resets the connection, and bytes in
        # flight would be lost.
        context.num_tickets = 0
        return context


def admitted_name(names: list[str], listener: ListenerConfig) -> str | None:
    """Return the first admitted name of a certificate, "" if it has none; None if the sender is refused."""
    patterns = [name.lower() for name in listener.client_names]
    admitted = [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]
    if patterns and not admitted:
        return None
    return admitted[0][:MAX_NAME_LENGTH] if admitted else ""


def names_of(sock: ssl.SSLSocket | ssl.SSLObject) -> list[str]:
    """Return the names in the peer's certificate, in lower case: alternative names, else the common name."""
    certificate: dict[str, Any] = dict(sock.getpeercert() or {})
    alternative = [text for _, text in certificate.get("subjectAltName", ()) if isinstance(text, str)]
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = alternative or [text for kind, text in subject if kind == "commonName"]
    return [name.lower() for name in names]

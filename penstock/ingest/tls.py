"""TLS of a listener's senders (RFC 5425): handshakes, who is let in, and reading records.

A module of its own, as a receiver without TLS does without OpenSSL.
"""

from __future__ import annotations

import socket
import ssl
from fnmatch import fnmatchcase
from typing import Any

from penstock.config import ListenerConfig
from penstock.config.keys.renewed_tls import RenewedContext

RECORD_SIZE = 16 << 10
"""Bytes of a TLS record at most: with that much room for it, nothing of it stays behind in OpenSSL."""
LONGEST_NAME = 253
"""Characters of a name that are kept: as long as a name of DNS may be."""


class ListenerTls:
    """TLS of a listener's sockets. Raises Unusable where its files cannot be used."""

    def __init__(self, listener: ListenerConfig) -> None:
        self._listener = listener
        paths = (listener.tls_cert, listener.tls_key, listener.client_ca)
        self.context = RenewedContext(self._new_context, paths)

    def name_of(self, tls: ssl.SSLObject | ssl.SSLSocket | None) -> str | None:
        """The name of a client's certificate, "" where none is asked for; None where it is not let in."""
        return admitted_name(names_of(tls) if tls else [], self._listener)

    def refresh(self) -> None:
        """Take renewed files, or report that they cannot be used, also while nobody connects."""
        self.context.current()

    def _new_context(self) -> ssl.SSLContext:
        context = self._listener.tls_context()
        assert context is not None, "a listener without tls_cert has no TLS"
        return context


class TlsDoor(ListenerTls):
    """That of sockets which are shaken and read here."""

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        """``sock`` before its handshake. Raises OSError."""
        return self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def shake(self, sock: socket.socket) -> tuple[str | None, str]:
        """Go on with a handshake: the name of the sender's certificate, None if more is to come; why it has to end.

        The name is "" where the sender showed no certificate, the reason "" where all is well.
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

    def receive(self, sock: socket.socket, room: memoryview) -> int:
        """Read what has come, whole records; 0 at the end. Raises BlockingIOError where nothing has, else OSError."""
        got = 0
        while not got or len(room) - got >= RECORD_SIZE:
            try:
                size = sock.recv_into(room[got:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not got:
                    raise BlockingIOError from None
                break
            except OSError:
                if not got:
                    raise
                break
            if not size:
                break
            got += size
        return got

    def _new_context(self) -> ssl.SSLContext:
        context = super()._new_context()
        # A sender that closes and has not read its tickets resets the connection: what is still on its way would go.
        context.num_tickets = 0
        return context


def admitted_name(names: list[str], listener: ListenerConfig) -> str | None:
    """The first of a certificate's names that is let in, "" where it has none; None where it is not let in."""
    patterns = [name.lower() for name in listener.client_names]
    known = [name for name in names if not patterns or any(fnmatchcase(name, one) for one in patterns)]
    if patterns and not known:
        return None
    return known[0][:LONGEST_NAME] if known else ""


def names_of(sock: ssl.SSLSocket | ssl.SSLObject) -> list[str]:
    """The names that the other side's certificate holds for, in lower case: alternative ones, else the common one."""
    certificate: dict[str, Any] = dict(sock.getpeercert() or {})
    alternative = [value for _, value in certificate.get("subjectAltName", ()) if isinstance(value, str)]
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = alternative or [value for kind, value in subject if kind == "commonName"]
    return [name.lower() for name in names]

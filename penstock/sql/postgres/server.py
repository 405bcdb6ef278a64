"""The server for clients of PostgreSQL. Each connection has a thread, which waits for its client or for DuckDB; the
number of both connections and running queries is limited.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import select
import socket
import ssl
import struct
import threading
import time
from collections import Counter

from penstock.config import Settings, split_address
from penstock.config.keys.security.contexts import server_context
from penstock.config.keys.security.renewed_tls import RenewedContext
from penstock.process.servers.port_owner import resolve_address
from penstock.sql.postgres import messages
from penstock.sql.postgres.access import Engine, FollowedTables, Rights
from penstock.sql.postgres.messages import Incoming, ProtocolViolation, SqlError
from penstock.sql.postgres.session.output import Output
from penstock.sql.postgres.session.session import Session
from penstock.sql.postgres.session.startup import authenticate

LOGIN_TIMEOUT_S, SEND_TIMEOUT_S = 10.0, 60.0
"""Limits for a client that sends no password, and for one that takes no rows."""
UNAUTHENTICATED = 16
"""Connections before their login, in addition to ``sql.max_connections``; requests to cancel need them."""
BACKLOG = 64
STOP_TIMEOUT_S = 2.0
MAX_NEGOTIATIONS = 3
"""Requests for TLS and GSSAPI before the first message."""
_LOGGER = logging.getLogger(__name__)


class _Socket:
    """The bytes of a connection, in the clear or in TLS. Used by the connection's thread; ``is_closed`` by any."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLRDHUP | select.POLLHUP | select.POLLERR)

    def receive(self, count: int, timeout_s: float | None) -> bytes:
        self._socket.settimeout(timeout_s)
        return self._socket.recv(count)

    def send(self, content: bytes | memoryview) -> None:
        self._socket.settimeout(SEND_TIMEOUT_S)
        self._socket.sendall(content)

    def is_closed(self) -> bool:
        return bool(self._poll.poll(0))

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Continue in TLS. Raises OSError."""
        self._socket.settimeout(LOGIN_TIMEOUT_S)
        self._socket = context.wrap_socket(self._socket, server_side=True)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Server:
    """Accepts clients at ``sql.postgres``. ``start`` opens the port; ``close`` ends all connections."""

    def __init__(self, settings: Settings) -> None:
        self._config, security = settings.sql, settings.security
        self._tls: ssl.SSLContext | None = None
        if (cert := security.tls_cert) is not None and (key := security.tls_key) is not None:
            authorities = security.client_ca
            paths = (cert, key, authorities)
            self._tls = RenewedContext(lambda: server_context(cert, key, authorities), paths)
        self._rights = Rights(settings)
        self._tables = FollowedTables(settings)
        self.engine = Engine(self._tables.tables, settings.sql, self._rights)
        self._lock = threading.Lock()
        self._connections: set[_Socket] = set()
        self._sessions: dict[int, tuple[int, Session]] = {}
        self._listener = socket.socket()

    @property
    def counts(self) -> Counter[str]:
        """Refused connections and statements by reason."""
        return self.engine.counts

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the open server."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def start(self) -> None:
        """Open the port and accept on a thread. Raises OSError."""
        host, port = split_address(self._config.postgres)
        family, address = resolve_address(host, port)
        # As for all other servers: clients of IPv4 reach `[::]`, too.
        has_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        self._listener = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=has_both)
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def close(self) -> None:
        """Close the port and end all connections; running queries are cancelled."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections, sessions = list(self._connections), list(self._sessions.values())
        for _, session in sessions:
            session.cancel()
        for connection in connections:
            connection.close()
        until = time.monotonic() + STOP_TIMEOUT_S
        while self._connections and time.monotonic() < until:
            time.sleep(0.01)
        self._rights.close()
        self._tables.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0:
                    return
                time.sleep(0.1)  # no descriptors, say
                continue
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = _Socket(connection)
            with self._lock:
                is_full = len(self._connections) >= self._config.max_connections + UNAUTHENTICATED
                if not is_full:
                    self._connections.add(wire)
            if is_full:
                self.counts["too many connections"] += 1
                wire.close()
            else:
                try:
                    threading.Thread(target=self._serve, args=(wire,), name="client", daemon=True).start()
                except RuntimeError:  # no thread can be started now; the next client may get one
                    self.counts["no thread"] += 1
                    with self._lock:
                        self._connections.discard(wire)
                    wire.close()

    def _serve(self, wire: _Socket) -> None:
        try:
            self._serve_client(wire)
        except (EOFError, OSError):
            pass  # the client has gone, or is too slow
        except ProtocolViolation as error:
            self.counts["protocol"] += 1
            with contextlib.suppress(OSError):
                wire.send(messages.error_response(SqlError("08P01", str(error)), "FATAL"))
        except Exception:
            # Nothing that one client sends may end the others; the cause is in the log.
            self.counts["a failed connection"] += 1
            _LOGGER.exception("a connection failed")
        finally:
            wire.close()
            with self._lock:
                self._connections.discard(wire)

    def _serve_client(self, wire: _Socket) -> None:
        deadline_s = time.monotonic() + LOGIN_TIMEOUT_S
        incoming = Incoming(lambda count: wire.receive(count, max(deadline_s - time.monotonic(), 0.001)))
        options = self._negotiate(wire, incoming)
        if options is None:
            return
        output = Output(wire)
        reader = authenticate(incoming, output, self.engine, options.get("database", options.get("user", "")))
        if reader is None:
            return
        session = Session(wire, incoming, output, self.engine, reader, options)
        process, secret = self._enter(session)
        if not process:
            self.counts["too many connections"] += 1
            text = f"too many connections (sql.max_connections = {self._config.max_connections})"
            wire.send(messages.error_response(SqlError("53300", text), "FATAL"))
            return
        try:
            session.start(process, secret)
            incoming.receive = session.receive
            session.run()
        finally:
            with self._lock:
                del self._sessions[process]
            session.close()

    def _enter(self, session: Session) -> tuple[int, int]:
        """Enter a session; return the number and the secret by which it is cancelled, 0 if there is no place."""
        with self._lock:
            if len(self._sessions) >= self._config.max_connections:
                return 0, 0
            process = 1 + secrets.randbelow((1 << 31) - 1)
            while process in self._sessions:
                process = 1 + secrets.randbelow((1 << 31) - 1)
            secret = secrets.randbits(32)
            self._sessions[process] = secret, session
            return process, secret

    def _negotiate(self, wire: _Socket, incoming: Incoming) -> dict[str, str] | None:
        """Return the options of the client's first message; None if the connection ends here."""
        encrypted = False
        for _ in range(MAX_NEGOTIATIONS):
            code, fields = incoming.first()
            if code == messages.CANCEL_REQUEST:
                self._cancel(fields)
                return None
            if code == messages.GSS_REQUEST:
                wire.send(b"N")
            elif code == messages.SSL_REQUEST:
                wire.send(b"S" if self._tls and not encrypted else b"N")
                if self._tls and not encrypted:
                    # Bytes from before the handshake may be anybody's.
                    if incoming.has_bytes:
                        raise ProtocolViolation("bytes arrived before the TLS handshake")
                    wire.start_tls(self._tls)
                    encrypted = True
            else:
                return self._options(wire, code, fields, encrypted)
        raise ProtocolViolation("too many requests for encryption")

    def _options(self, wire: _Socket, code: int, fields: messages.Reader, encrypted: bool) -> dict[str, str] | None:
        if code >> 16 != messages.PROTOCOL_MAJOR:
            raise ProtocolViolation(f"version {code >> 16}.{code & 0xFFFF} of the protocol is not supported")
        options: dict[str, str] = {}
        while name := fields.text():
            options[name] = fields.text()
        if self._tls is not None and not encrypted:
            self.counts["no TLS"] += 1
            text = "this server accepts connections with TLS only: sslmode=require"
            wire.send(messages.error_response(SqlError("28000", text), "FATAL"))
            return None
        unknown = [name for name in options if name.startswith("_pq_.")]
        if code & 0xFFFF or unknown:
            wire.send(messages.negotiate_version(0, unknown))
        return options

    def _cancel(self, fields: messages.Reader) -> None:
        process, secret = struct.unpack("!II", fields.read_bytes(8))
        with self._lock:
            expected, session = self._sessions.get(process, (None, None))
        if session is not None and expected == secret:
            session.cancel()

"""Listening sockets: opening them, handing their address from old to new ones, and reading the kernel's counters."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import ListenerConfig, split_address
from penstock.errors import PenstockError
from penstock.ingest.local_sockets import bind_file, request_credentials, serves_file
from penstock.process.kernel import boot_id
from penstock.process.servers.port_owner import describe_bind_error, resolve_address

if TYPE_CHECKING:
    from penstock.ingest.tls import TlsSockets

SO_MEMINFO = 55
DROPS_INDEX = 8
"""Index of the drop counter among SO_MEMINFO's 32-bit numbers (SK_MEMINFO_DROPS)."""
SO_RCVBUFFORCE = 33
BACKLOG = 1024
ADDRESS_BYTES = 28
"""Size of the largest socket address, an IPv6 one."""


class CannotListen(PenstockError, OSError):
    """A listener's socket cannot be opened; the text names listener and address."""


def open_socket(listener: ListenerConfig, old_sockets: Sequence[socket.socket] = ()) -> socket.socket:
    """Return the bound socket of a listener. Raises CannotListen.

    TCP connections are refused until a receiver calls ``listen``: what their senders send would stay unread.
    ``old_sockets`` still own the address: the new socket receives no datagrams until ``let_in``, called when they are
    closed.
    """
    if listener.is_local:
        return _open_local_socket(listener)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listener.host,
            listener.port,
            type=socket.SOCK_DGRAM if listener.takes_datagrams else socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            _bind(sock, listener, address, old_sockets)
        except OSError:
            sock.close()
            raise
    except (OSError, ValueError) as error:  # ValueError: the host is not a valid name
        raise cannot_listen(listener, error) from None
    return sock


def _open_local_socket(listener: ListenerConfig) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM if listener.takes_datagrams else socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        # Order: before the file exists; datagrams that are sent before have no credentials.
        request_credentials(sock)
        bind_file(sock, listener)
        if listener.takes_lines:
            sock.listen(BACKLOG)  # the file belongs to the process that listens
    except (OSError, ValueError) as error:
        sock.close()
        raise cannot_listen(listener, error) from None
    return sock


def check_listener(listener: ListenerConfig) -> None:
    """Check that a listener's socket can be opened, and leave nothing behind. Raises CannotListen."""
    open_socket(listener).close()
    if listener.is_local:
        Path(listener.path).unlink(missing_ok=True)


def serves_listener(sock: socket.socket, listener: ListenerConfig) -> bool:
    """Report whether an inherited socket is what ``open_socket`` would open for the listener."""
    if listener.is_local:
        return serves_file(sock, listener)
    kind = socket.SOCK_DGRAM if listener.takes_datagrams else socket.SOCK_STREAM
    try:
        addresses = socket.getaddrinfo(listener.host, listener.port, type=kind, flags=socket.AI_PASSIVE)
        family, _, _, _, (host, port, *_) = addresses[0]
        bound_host, bound_port = sock.getsockname()[:2]
        # gRPC binds its own socket next to one that reserves the address; others listen once they have a receiver.
        is_listening = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        is_reserved = not is_listening and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))
    except (OSError, ValueError):  # ValueError: the host is not a valid name, or the socket has no address
        return False
    return (
        (sock.family, sock.type, bound_host) == (family, kind, host)
        and port in (0, bound_port)
        and (listener.takes_datagrams or is_reserved == (listener.protocol == "otlp_grpc"))
    )


def cannot_listen(listener: ListenerConfig, error: Exception) -> CannotListen:
    """Return the error for a listener whose address cannot be bound."""
    address = f"{listener.protocol} {listener.address_text}"
    if listener.is_local:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
    else:
        reason = describe_bind_error(error, listener.transport, listener.port)
    return CannotListen(f"listener {listener.name!r}: cannot listen on {address}: {reason}")


def _bind(
    sock: socket.socket, listener: ListenerConfig, address: tuple[object, ...], old_sockets: Sequence[socket.socket]
) -> None:
    sock.setblocking(False)
    request_buffer(sock, listener.so_rcvbuf)
    if listener.transport == "tcp":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Order: old sockets stay open until the new one is bound, so that the port is never free for another process.
    with _allow_shared_bind([sock, *old_sockets] if old_sockets else []):
        share_port(sock, listener)
        sock.bind(address)
    if listener.protocol == "otlp_grpc":  # this socket reserves the address; gRPC binds its own
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if listener.transport == "tcp":
        # Otherwise another process could bind the address, too, before a receiver listens.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    if old_sockets and not listener.shares_port:  # a connected socket leaves the group that shares a port
        turn_away(sock)


def share_port(sock: socket.socket, listener: ListenerConfig) -> None:
    """Set whether other receivers of this user may bind the port: the kernel assigns each sender to one."""
    if sock.type == socket.SOCK_DGRAM and not listener.is_local:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(listener.shares_port))


@contextlib.contextmanager
def _allow_shared_bind(socks: Sequence[socket.socket]) -> Iterator[None]:
    """Allow a bind next to bound sockets for the duration of the context; no other process may bind after it."""
    options = [socket.SO_REUSEPORT if sock.type == socket.SOCK_STREAM else socket.SO_REUSEADDR for sock in socks]
    for sock, option in zip(socks, options, strict=True):
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        yield
    finally:
        for sock, option in zip(socks, options, strict=True):
            sock.setsockopt(socket.SOL_SOCKET, option, 0)


def turn_away(sock: socket.socket) -> None:
    """Stop reception on a datagram socket; datagrams already received can still be read.

    Workaround: Linux has no other way. A connected socket receives from its peer only, and its peer is the socket
    itself.
    """
    if sock.family == socket.AF_UNIX:
        if sock.type == socket.SOCK_DGRAM:
            sock.shutdown(socket.SHUT_RD)  # senders get EPIPE
    elif sock.type == socket.SOCK_DGRAM:
        host, port, *rest = sock.getsockname()
        with contextlib.suppress(OSError):
            sock.connect(({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port, *rest))


def listen(sock: socket.socket, listener: ListenerConfig) -> None:
    """Let senders connect; once a socket listens this changes nothing. For receivers. Raises CannotListen."""
    try:
        if not listener.is_local:  # closed connections of an earlier socket still have the address
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.listen(BACKLOG)
    except OSError as error:
        raise cannot_listen(listener, error) from None


def refuse_connections(sock: socket.socket) -> None:
    """Stop listening until ``listen`` is called again, and reset connections that are not accepted yet.

    Limit: a local socket cannot go back, so its connections wait for the next receiver.
    """
    if sock.family == socket.AF_UNIX or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return
    address = sock.getsockname()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
        # A port that the kernel has chosen is free now; bound to any other one this fails.
        sock.bind(address)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def let_in(sock: socket.socket) -> None:
    """Start reception on a datagram socket that was opened next to old ones. Raises OSError."""
    unspecified = ctypes.create_string_buffer(ADDRESS_BYTES)  # family 0, AF_UNSPEC: connect() with it disconnects
    if ctypes.CDLL(None, use_errno=True).connect(sock.fileno(), unspecified, ADDRESS_BYTES):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def check_address(key: str, address: str) -> None:
    """Check that the daemon can listen on ``address``. Raises CannotListen that names ``key``."""
    host, port = split_address(address)
    try:
        family, socket_address = resolve_address(host, port)
        with socket.socket(family) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(socket_address)
    except (OSError, ValueError) as error:
        raise CannotListen(f"{key}: cannot listen on {address}: {describe_bind_error(error, 'tcp', port)}") from None


def request_buffer(sock: socket.socket, size: int) -> None:
    """Request ``size`` bytes of receive buffer; with CAP_NET_ADMIN also beyond net.core.rmem_max."""
    try:
        # Privileged: exceeds net.core.rmem_max; without CAP_NET_ADMIN the kernel refuses it.
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def granted_buffer(sock: socket.socket) -> int:
    """Return the receive buffer that the kernel granted, in bytes (it charges up to twice as much)."""
    # The kernel doubles the requested size for its own bookkeeping (man 7 socket).
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


def kernel_drops(sock: socket.socket) -> int:
    """Return the datagrams dropped at this socket since it was opened, modulo 2^32; 0 if unknown."""
    try:
        counters = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 4 * (DROPS_INDEX + 1))
    except OSError:
        return 0
    return int(struct.unpack_from("<I", counters, 4 * DROPS_INDEX)[0]) if len(counters) >= 4 * (DROPS_INDEX + 1) else 0


def socket_identity(sock: socket.socket) -> str:
    """Return an identity of this socket that differs from earlier and later sockets, also across reboots."""
    cookie = 57  # SO_COOKIE: unique for as long as the machine is up
    try:
        number = sock.getsockopt(socket.SOL_SOCKET, cookie, 8).hex()
    except OSError:
        # Sandboxes without SO_COOKIE (gVisor): the inode is unique among open sockets.
        number = str(os.fstat(sock.fileno()).st_ino)
    return f"{boot_id()}:{number}"


def tls_sockets(listener: ListenerConfig) -> TlsSockets | None:
    """Return the TLS of a listener's senders, or None without a certificate."""
    if listener.tls_cert is None:
        return None
    from penstock.ingest.tls import TlsSockets  # loads OpenSSL, which listeners without TLS do not need

    return TlsSockets(listener)

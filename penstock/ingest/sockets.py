"""Opening the listeners' sockets, and what the kernel says of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterator, Sequence

from penstock.config import ListenerConfig, split_address
from penstock.errors import PenstockError
from penstock.process.kernel import boot_id

SO_MEMINFO = 55
DROPS = 8
"""Place of the drop counter among SO_MEMINFO's 32-bit numbers (SK_MEMINFO_DROPS)."""
SO_RCVBUFFORCE = 33
BACKLOG = 1024
ADDRESS_SIZE = 28
"""Bytes of the largest address of a socket, that of IPv6."""


class CannotListen(PenstockError, OSError):
    """A listener's socket cannot be opened; the text names listener and address."""


def open_socket(listener: ListenerConfig, beside: Sequence[socket.socket] = ()) -> socket.socket:
    """The bound socket of a listener (listening for TCP). Raises CannotListen.

    ``beside`` sockets that have the address still: it takes nothing until ``let_in``, when these are closed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listener.host,
            listener.port,
            type=socket.SOCK_DGRAM if listener.protocol == "udp" else socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            _bind(sock, listener, address, beside)
        except OSError:
            sock.close()
            raise
    except (OSError, ValueError) as error:  # ValueError: a host that cannot be a name
        raise cannot_listen(listener, error) from None
    return sock


def cannot_listen(listener: ListenerConfig, error: Exception) -> CannotListen:
    """What ``error`` means for a listener."""
    where = f"{listener.protocol} {listener.host}:{listener.port}"
    return CannotListen(f"listener {listener.name!r}: cannot listen on {where}: {_reason(error)}")


def _bind(
    sock: socket.socket, listener: ListenerConfig, address: tuple[object, ...], beside: Sequence[socket.socket]
) -> None:
    sock.setblocking(False)
    ask_buffer(sock, listener.so_rcvbuf)
    if listener.transport == "tcp":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with _shared([sock, *beside] if beside else []):
        share_port(sock, listener)
        sock.bind(address)
    if listener.protocol == "otlp_grpc":  # it keeps the address; the receiver's gRPC binds a socket of its own
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if beside and not listener.shares_port:  # connected once, a socket is no longer among those that share one
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # or others could bind it while it does not listen
        turn_away(sock)
    elif listener.protocol in ("tcp", "http"):
        sock.listen(BACKLOG)


def share_port(sock: socket.socket, listener: ListenerConfig) -> None:
    """Whether other receivers of this user may bind its port: the kernel gives each sender to one of them."""
    if sock.type == socket.SOCK_DGRAM:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(listener.shares_port))


@contextlib.contextmanager
def _shared(socks: Sequence[socket.socket]) -> Iterator[None]:
    """Have the kernel bind one of these where others are bound; nobody else may afterwards."""
    options = [socket.SO_REUSEPORT if sock.type == socket.SOCK_STREAM else socket.SO_REUSEADDR for sock in socks]
    for sock, option in zip(socks, options, strict=True):
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        yield
    finally:
        for sock, option in zip(socks, options, strict=True):
            sock.setsockopt(socket.SOL_SOCKET, option, 0)


def turn_away(sock: socket.socket) -> None:
    """Have the kernel take nothing more, while what it took can still be read (UDP).

    A connected socket takes from its peer alone; and its peer is itself.
    """
    if sock.type == socket.SOCK_DGRAM:
        host, port, *rest = sock.getsockname()
        with contextlib.suppress(OSError):
            sock.connect(({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port, *rest))


def let_in(sock: socket.socket) -> None:
    """Have the kernel take what comes to a socket that was opened beside others."""
    if sock.type == socket.SOCK_STREAM:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.listen(BACKLOG)
    else:
        nobody = ctypes.create_string_buffer(ADDRESS_SIZE)  # its family is 0, AF_UNSPEC: connected no more
        if ctypes.CDLL(None, use_errno=True).connect(sock.fileno(), nobody, ADDRESS_SIZE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def check_address(key: str, address: str) -> None:
    """Whether the daemon will be able to listen on ``address``. Raises CannotListen, naming ``key``."""
    host, port = split_address(address)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(where)
    except (OSError, ValueError) as error:
        raise CannotListen(f"{key}: cannot listen on {address}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def ask_buffer(sock: socket.socket, size: int) -> None:
    """Ask for ``size`` bytes of receive buffer; with CAP_NET_ADMIN beyond net.core.rmem_max too."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def granted_buffer(sock: socket.socket) -> int:
    """Bytes of receive buffer that the kernel granted (it books twice what it grants)."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


def kernel_drops(sock: socket.socket) -> int:
    """How many datagrams the kernel dropped at this socket since it was opened, modulo 2^32; 0 where unknown."""
    try:
        info = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 4 * (DROPS + 1))
    except OSError:
        return 0
    return int(struct.unpack_from("<I", info, 4 * DROPS)[0]) if len(info) >= 4 * (DROPS + 1) else 0


def socket_identity(sock: socket.socket) -> str:
    """What tells this socket from the listener's sockets before and after it, also after a start of the machine."""
    cookie = 57  # SO_COOKIE: unique for as long as the machine is up
    try:
        number = sock.getsockopt(socket.SOL_SOCKET, cookie, 8).hex()
    except OSError:
        number = str(os.fstat(sock.fileno()).st_ino)
    return f"{boot_id()}:{number}"

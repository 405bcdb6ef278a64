"""Resolve the address of a server, and find the process that has its port, for the error of one that cannot bind it."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from penstock.process.kernel import PROCESSES, open_files

LOCAL_ADDRESS, INODE = 1, 9
"""Columns of /proc/net/tcp and /proc/net/udp, see proc(5)."""


REMEDIES = {
    errno.EACCES: "ports below 1024 need root or CAP_NET_BIND_SERVICE",
    errno.EADDRNOTAVAIL: "no network interface of this machine has this address",
}


def resolve_address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """Return the address family of ``host`` and the address for ``bind``. Raises OSError, ValueError.

    A name with addresses of both families, such as ``localhost``, means the IPv4 one: clients often know only that.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(addresses, key=lambda info: info[0] != socket.AF_INET)
    return family, address


def describe_bind_error(error: Exception, transport: str, port: int) -> str:
    """Return why an address cannot be bound; names the process that has the port if this user may see it.

    ``transport`` is ``udp`` or ``tcp``.
    """
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    remedy = REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
    if remedy:
        return f"{reason}: {remedy}"
    if not isinstance(error, OSError) or error.errno != errno.EADDRINUSE:
        return reason
    owner = port_owner(transport, port)
    return f"{reason} by process {owner[0]} ({owner[1]})" if owner else reason


def port_owner(transport: str, port: int) -> tuple[int, str] | None:
    """Return process id and name of a process with a socket bound to ``port``; None if this user can see none."""
    links = {f"socket:[{inode}]" for inode in _inodes_of_port(transport, port)}
    for pid, target in open_files() if links else ():
        if target in links:
            with contextlib.suppress(OSError):  # it has ended
                return pid, (PROCESSES / str(pid) / "comm").read_text().strip()
    return None


def _inodes_of_port(transport: str, port: int) -> Iterator[str]:
    suffix = f":{port:04X}"
    for table in (transport, f"{transport}6"):
        with contextlib.suppress(OSError):
            for line in (PROCESSES / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[LOCAL_ADDRESS].endswith(suffix):
                    yield fields[INODE]

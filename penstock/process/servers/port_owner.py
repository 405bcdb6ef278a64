"""Find the process that has a port, for the error of a process that cannot bind it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from penstock.process.kernel import PROCESSES, open_files

LOCAL_ADDRESS, INODE = 1, 9
"""Columns of /proc/net/tcp and /proc/net/udp, see proc(5)."""


def describe_bind_error(error: Exception, transport: str, port: int) -> str:
    """Return why an address cannot be bound; names the process that has the port if this user may see it.

    ``transport`` is ``udp`` or ``tcp``.
    """
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
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

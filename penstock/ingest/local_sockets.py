"""Local sockets (Unix domain): their files, and the credentials of their senders.

Invariant: the file of a socket that somebody listens on is never removed; the file that a killed process left is.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import socket
import stat
import struct
from pathlib import Path

from penstock.config import ListenerConfig

QUEUE_LENGTH = Path("/proc/sys/net/unix/max_dgram_qlen")
"""Datagrams that wait in a local socket before its senders have to; a socket has the value of when it was opened."""
DEFAULT_QUEUE_LENGTH = 10
SMALL_QUEUE_LENGTH = 100
"""Queue length below which senders wait for nearly every read of the receiver."""
_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid


def bind_file(sock: socket.socket, listener: ListenerConfig) -> None:
    """Bind a socket to its file, with the configured mode and owner. Raises OSError and ValueError."""
    path = Path(listener.path)
    _remove_stale_file(path, sock.type)
    # Order: nobody can write to the file before it has its owner and mode.
    umask = os.umask(0o777)
    try:
        sock.bind(listener.path)
    finally:
        os.umask(umask)
    try:
        set_file_access(listener)
    except (OSError, ValueError):
        path.unlink(missing_ok=True)
        raise


def set_file_access(listener: ListenerConfig) -> None:
    """Set owner and mode of a socket's file. Raises OSError and ValueError."""
    user, _, group = listener.owner.partition(":")
    if listener.owner:
        os.chown(listener.path, _user_id(user), _group_id(group))
    Path(listener.path).chmod(int(listener.mode, 8))


def _user_id(name: str) -> int:
    """Return the number of a user; -1, which changes nothing, for an empty name. Raises ValueError."""
    try:
        return int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid if name else -1
    except KeyError:
        raise ValueError(f"owner: there is no user {name!r}") from None


def _group_id(name: str) -> int:
    try:
        return int(name) if name.isdigit() else grp.getgrnam(name).gr_gid if name else -1
    except KeyError:
        raise ValueError(f"owner: there is no group {name!r}") from None


def _remove_stale_file(path: Path, kind: int) -> None:
    """Remove the file of a socket without a listening process. Raises OSError and ValueError for any other file."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise ValueError(
                f"it is a link to {path.readlink()}, such as journald's: disable systemd-journald-dev-log.socket and "
                "remove the link, or configure another path"
            )
        if not stat.S_ISSOCK(mode):
            raise ValueError("the file exists and is not a socket: remove it, or configure another path")
        with socket.socket(socket.AF_UNIX, kind) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                return
            except (BlockingIOError, OSError) as error:
                # Its queue is full (EAGAIN), or it has another type (EPROTOTYPE): a process has it open.
                if error.errno not in (errno.EAGAIN, errno.EPROTOTYPE):
                    raise
        raise OSError(errno.EADDRINUSE, "Address already in use: a process listens on this socket")


def serves_file(sock: socket.socket, listener: ListenerConfig) -> bool:
    """Report whether an inherited socket is bound to the listener's file, and the file exists."""
    kind = socket.SOCK_DGRAM if listener.takes_datagrams else socket.SOCK_STREAM
    if (sock.family, sock.type) != (socket.AF_UNIX, kind):
        return False
    is_listening = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    # systemd binds /run/systemd/journal/dev-log, and /dev/log is a link to it.
    bound, path = sock.getsockname(), Path(listener.path)
    is_bound = isinstance(bound, str) and bound != "" and os.path.realpath(bound) == os.path.realpath(path)
    return is_bound and path.is_socket() and is_listening == listener.takes_lines


def request_credentials(sock: socket.socket) -> None:
    """Let the kernel attach the sender's credentials to each datagram."""
    if passcred := getattr(socket, "SO_PASSCRED", None):  # Linux only
        sock.setsockopt(socket.SOL_SOCKET, passcred, 1)


def peer_credentials(sock: socket.socket) -> tuple[int, int, int]:
    """Return process, user and group that opened the other end of a connection; Linux only."""
    pid, uid, gid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid


def queue_length() -> int:
    """Return how many datagrams wait in a new local socket before its senders have to."""
    try:
        return int(QUEUE_LENGTH.read_text())
    except (OSError, ValueError):
        return DEFAULT_QUEUE_LENGTH

"""Notifies systemd of a service's state (Type=notify, sd_notify(3)), and keeps sockets in its store (FDSTORE).

Without systemd it does nothing. The store outlives the service: a restart, also after a crash, gets the same sockets
back, with all that the kernel received in between.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
RELOADING = "RELOADING=1"
WATCHDOG = "WATCHDOG=1"
FIRST_DESCRIPTOR = 3
"""Descriptor of the first socket that systemd passes, SD_LISTEN_FDS_START."""


def notify(state: str, *descriptors: int) -> bool:
    """Send ``state``, with descriptors to store, to the service manager; return whether there is one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        socket.send_fds(sock, [state.encode()], descriptors)
        return True
    return False


def take_stored_sockets() -> list[tuple[str, socket.socket]]:
    """Return the sockets that systemd opened or kept for this process, with the names of their listeners, once.

    Several sockets have one name if a unit opened one and the listener has had another address since then.
    """
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    count, pid = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_PID", "")
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    stored: dict[int, tuple[str, socket.socket]] = {}
    for descriptor, name in zip(range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)), names, strict=False):
        os.set_inheritable(descriptor, False)
        try:
            sock = socket.socket(fileno=descriptor)
        except OSError:  # no socket: another program's entry of the store
            os.close(descriptor)
            continue
        # A socket that a unit opened is also in the store, and is passed twice.
        if (inode := os.fstat(descriptor).st_ino) in stored:
            sock.close()
        else:
            stored[inode] = (name, sock)
    return list(stored.values())


def address_text(sock: socket.socket) -> str:
    """Return the address that a socket is bound to, as a person reads it."""
    address = sock.getsockname()
    return os.fsdecode(address) if isinstance(address, str | bytes) else ":".join(map(str, address[:2]))


def keeps_sockets() -> bool:
    """Report whether a service manager may keep the sockets when this process ends."""
    return "NOTIFY_SOCKET" in os.environ


def store_sockets(sockets: Mapping[str, socket.socket]) -> None:
    """Store the sockets of listeners by name; systemd ignores sockets that it has."""
    for name, sock in sockets.items():
        # FDPOLL: otherwise systemd drops a socket that does not listen yet.
        notify(f"FDSTORE=1\nFDPOLL=0\nFDNAME={name}", sock.fileno())


def drop_stored_sockets(name: str) -> None:
    """Remove the sockets of a listener from the store."""
    notify(f"FDSTOREREMOVE=1\nFDNAME={name}")


class Service:
    """A service as its manager sees it: ready once ``answers`` returns true, alive as long as ``tick`` is called."""

    def __init__(self, answers: Callable[[], bool]) -> None:
        self._answers, self._ready, self._watchdog = answers, False, Watchdog()

    def tick(self) -> None:
        """Report readiness and liveness. Call it several times per watchdog interval."""
        if not self._ready and self._answers():
            self._ready = True
            notify(READY)
        self.alive()

    @property
    def is_ready(self) -> bool:
        """The service has answered since the start or the last reload."""
        return self._ready

    def alive(self) -> None:
        """Report liveness alone, during a long operation."""
        self._watchdog.tick()

    def reloading(self) -> None:
        """Report that a reload begins; the next ``tick`` reports its end."""
        # systemd requires the time with RELOADING=1, see sd_notify(3).
        notify(f"{RELOADING}\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._ready = False

    def stopping(self) -> None:
        """Report that the service ends."""
        notify(STOPPING)


def listens(address: tuple[str, int]) -> bool:
    """Report whether a TCP connection to an address is accepted."""
    try:
        with socket.create_connection(address, timeout=1):
            return True
    except OSError:
        return False


class Watchdog:
    """Periodic sign of life for the service manager, twice per WatchdogSec."""

    def __init__(self) -> None:
        # systemd sets WATCHDOG_PID to the main process: a child that inherits the variables must not answer for it.
        is_addressed = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        interval_us = os.environ.get("WATCHDOG_USEC", "")
        self._interval_s = int(interval_us) / 2e6 if is_addressed and interval_us.isdigit() else 0.0
        self._next_s = 0.0

    def tick(self) -> None:
        """Send the sign of life if it is due."""
        if self._interval_s and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._interval_s
            notify(WATCHDOG)

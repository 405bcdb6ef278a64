"""Notifies systemd of a service's state (Type=notify, sd_notify(3)); without systemd it does nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable

READY = "READY=1"
STOPPING = "STOPPING=1"
RELOADING = "RELOADING=1"
WATCHDOG = "WATCHDOG=1"


def notify(state: str) -> bool:
    """Send ``state`` to the service manager; return whether there is one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.sendall(state.encode())
        return True
    return False


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

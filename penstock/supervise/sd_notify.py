"""Tells systemd how a service is doing (Type=notify, sd_notify(3)); without systemd it does nothing."""

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
    """Send ``state`` to the service manager; whether there is one that could be told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.sendall(state.encode())
        return True
    return False


class Service:
    """A service as its manager sees it: ready once ``answers``, alive as long as ``tick`` is called."""

    def __init__(self, answers: Callable[[], bool]) -> None:
        self._answers, self._ready, self._watchdog = answers, False, Watchdog()

    def tick(self) -> None:
        """To be called often."""
        if not self._ready and self._answers():
            self._ready = True
            notify(READY)
        self.alive()

    def alive(self) -> None:
        """As ``tick``, while it is busy with something that is not over yet."""
        self._watchdog.tick()

    def reloading(self) -> None:
        """The configuration is read anew; ``tick`` tells when that is over."""
        notify(f"{RELOADING}\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._ready = False

    def stopping(self) -> None:
        """The service ends."""
        notify(STOPPING)


def listens(address: tuple[str, int]) -> bool:
    """Whether somebody takes connections at an address."""
    try:
        with socket.create_connection(address, timeout=1):
            return True
    except OSError:
        return False


class Watchdog:
    """Tells the service manager that all is well, twice in the time it waits for that (WatchdogSec)."""

    def __init__(self) -> None:
        mine = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        micros = os.environ.get("WATCHDOG_USEC", "")
        self._every = int(micros) / 2e6 if mine and micros.isdigit() else 0.0
        self._next = 0.0

    def tick(self) -> None:
        """To be called often."""
        if self._every and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            notify(WATCHDOG)

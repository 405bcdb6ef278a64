"""How the supervisor tells the running log daemon of settings and listeners that are new.

A message is a number and, as descriptors, a file in memory with the settings (JSON) and the eventfds that wake the
daemon for listeners it does not know yet; the answer is the number. Messages are whole or not there, so that a
daemon that dies in between leaves nothing that its successor could misread.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MOST_DESCRIPTORS = 250
"""In one message (SCM_MAX_FD is 253); who is beyond is looked after a little later each time."""
PATIENCE = 10.0
"""Seconds that the daemon has to answer."""
LOOK_EVERY = 0.05


@dataclass(frozen=True, slots=True)
class NewSettings:
    """One message: ``settings`` as dumped, ``wakes`` the eventfds by listener."""

    number: int
    settings: dict[str, Any]
    wakes: dict[str, int]


class Channel:
    """Both ends of the way from the supervisor to the daemon."""

    def __init__(self) -> None:
        self._mine, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._mine.settimeout(LOOK_EVERY)
        self._number = 0

    @property
    def descriptor(self) -> int:
        """The daemon's end."""
        return self._theirs.fileno()

    def tell(
        self, settings: dict[str, Any], wakes: Mapping[str, int], runs: Callable[[], bool], tick: Callable[[], None]
    ) -> bool:
        """Tell the daemon, and wait while it ``runs``, calling ``tick`` meanwhile; whether it has answered."""
        self._number += 1
        sent = dict(list(wakes.items())[: MOST_DESCRIPTORS - 1])
        document = json.dumps({"settings": settings, "wakes": list(sent)}).encode()
        file = os.memfd_create("penstock-settings")
        try:
            with os.fdopen(os.dup(file), "wb") as writing:
                writing.write(document)
            socket.send_fds(self._mine, [self._number.to_bytes(8, "little")], [file, *sent.values()])
        except OSError:  # it has not read for long: its successor starts with these settings
            return False
        finally:
            os.close(file)
        until = time.monotonic() + PATIENCE
        while runs() and time.monotonic() < until:
            tick()
            if self._answered() == self._number:
                return True
        return False

    def clear(self) -> None:
        """Forget what no daemon has read."""
        room = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
        with contextlib.suppress(BlockingIOError):
            while True:  # recv_fds of Python 3.11 passes no flags on
                for _, _, data in self._theirs.recvmsg(8, room, socket.MSG_DONTWAIT)[1]:
                    for descriptor in memoryview(data).cast("i"):
                        os.close(descriptor)

    def _answered(self) -> int:
        try:
            return int.from_bytes(self._mine.recv(8), "little")
        except OSError:  # nothing yet
            return 0

    def close(self) -> None:
        """Close both ends."""
        self._mine.close()
        self._theirs.close()


class DaemonEnd:
    """The daemon's end."""

    def __init__(self, descriptor: int) -> None:
        self._sock = socket.socket(fileno=descriptor)
        self._sock.settimeout(None)

    def receive(self) -> NewSettings | None:
        """The next message, waited for; None when nobody is at the other end any more."""
        number, descriptors, _, _ = socket.recv_fds(self._sock, 8, MOST_DESCRIPTORS)
        if not descriptors:
            return None
        with os.fdopen(descriptors[0], "rb") as file:
            file.seek(0)
            document = json.load(file)
        wakes = dict(zip(document["wakes"], descriptors[1:], strict=True))
        return NewSettings(int.from_bytes(number, "little"), document["settings"], wakes)

    def answer(self, told: NewSettings) -> None:
        """The message was obeyed."""
        self._sock.send(told.number.to_bytes(8, "little"))

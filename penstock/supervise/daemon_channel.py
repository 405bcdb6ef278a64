"""How the supervisor tells the running log daemon of settings and listeners that are new.

A message is a number and, as descriptors, a file in memory with the settings (JSON) and the eventfds that wake the
daemon for listeners it does not know yet; the answer is the number. Messages are whole or not there, so that a
daemon that dies in between leaves nothing that its successor could misread. What has happened (events, posts of the
ledger) goes the same way: a number and the events as JSON, without descriptors.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

MOST_DESCRIPTORS = 250
"""In one message (SCM_MAX_FD is 253); where there are more, there are more messages."""
PATIENCE = 10.0
"""Seconds that the daemon has to answer."""
LOOK_EVERY = 0.05
LONGEST = 64 << 10
"""Bytes of a message."""
MOST_EVENTS = 20
"""In a message."""


@dataclass(frozen=True, slots=True)
class NewSettings:
    """One message: ``settings`` as dumped, ``wakes`` the eventfds by listener, None where there is no descriptor."""

    number: int
    settings: dict[str, Any]
    wakes: dict[str, int | None]


@dataclass(frozen=True, slots=True)
class NewEvents:
    """One message: what has happened."""

    number: int
    events: list[dict[str, Any]]


class Channel:
    """Both ends of the way from the supervisor to the daemon."""

    def __init__(self) -> None:
        self._mine, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._mine.settimeout(LOOK_EVERY)
        self._number = 0
        self.answered = 0
        """Messages up to this number were obeyed."""

    @property
    def descriptor(self) -> int:
        """The daemon's end."""
        return self._theirs.fileno()

    def tell(
        self, settings: dict[str, Any], wakes: Mapping[str, int], runs: Callable[[], bool], tick: Callable[[], None]
    ) -> bool:
        """Tell the daemon, and wait while it ``runs``, calling ``tick`` meanwhile; whether it has answered.

        Raises OSError where it cannot be told now: descriptors have run out, or it has not read for long.
        """
        for sent in _parts(wakes):
            self._send(settings, sent)
        until = time.monotonic() + PATIENCE
        while runs() and time.monotonic() < until:
            tick()
            if self._hear() == self._number:
                return True
        return False

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> int:
        """Send events without waiting; the number that is answered once they are kept, 0 where it has to be later."""
        data = json.dumps(events).encode()
        try:
            self._mine.settimeout(0)
            self._mine.send((self._number + 1).to_bytes(8, "little") + data)
        except OSError:
            return 0
        finally:
            self._mine.settimeout(LOOK_EVERY)
        self._number += 1
        return self._number

    def hear(self) -> int:
        """What is answered already, without waiting."""
        self._mine.settimeout(0)
        try:
            before = -1
            while before != self.answered:
                before = self.answered
                self._hear()
        finally:
            self._mine.settimeout(LOOK_EVERY)
        return self.answered

    def _send(self, settings: dict[str, Any], wakes: Mapping[str, int]) -> None:
        self._number += 1
        document = json.dumps({"settings": settings, "wakes": list(wakes)}).encode()
        file = os.memfd_create("penstock-settings")
        try:
            with os.fdopen(os.dup(file), "wb") as writing:
                writing.write(document)
            socket.send_fds(self._mine, [self._number.to_bytes(8, "little")], [file, *wakes.values()])
        finally:
            os.close(file)

    def clear(self) -> None:
        """Forget what no daemon has read."""
        room = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
        with contextlib.suppress(BlockingIOError):
            while True:  # recv_fds of Python 3.11 passes no flags on
                for _, _, data in self._theirs.recvmsg(8, room, socket.MSG_DONTWAIT)[1]:
                    for descriptor in memoryview(data).cast("i"):
                        os.close(descriptor)

    def _hear(self) -> int:
        with contextlib.suppress(OSError):  # nothing yet
            self.answered = max(self.answered, int.from_bytes(self._mine.recv(8), "little"))
        return self.answered

    def close(self) -> None:
        """Close both ends."""
        self._mine.close()
        self._theirs.close()


def _parts(wakes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """``wakes`` in parts that fit into one message beside its file; one that is empty where there are none."""
    most, names = MOST_DESCRIPTORS - 1, list(wakes)
    for begin in range(0, max(len(names), 1), most):
        yield {name: wakes[name] for name in names[begin : begin + most]}


class DaemonEnd:
    """The daemon's end."""

    def __init__(self, descriptor: int) -> None:
        self._sock = socket.socket(fileno=descriptor)
        self._sock.settimeout(None)

    def receive(self) -> NewSettings | NewEvents | None:
        """The next message, waited for; None when nobody is at the other end any more."""
        data, descriptors, _, _ = socket.recv_fds(self._sock, LONGEST, MOST_DESCRIPTORS)
        number, events = data[:8], data[8:]
        if not number:
            return None
        if events:
            return NewEvents(int.from_bytes(number, "little"), json.loads(events))
        if not descriptors:
            raise OSError(errno.EMFILE, "new settings cannot be read: no descriptor is left")
        with os.fdopen(descriptors[0], "rb") as file:
            file.seek(0)
            document = json.load(file)
        wakes: dict[str, int | None] = dict(zip_longest(document["wakes"], descriptors[1:]))
        return NewSettings(int.from_bytes(number, "little"), document["settings"], wakes)

    def answer(self, told: NewSettings | NewEvents) -> None:
        """The message was obeyed."""
        self._sock.send(told.number.to_bytes(8, "little"))

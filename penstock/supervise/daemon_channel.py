"""The channel by which the supervisor sends new settings, listeners and events to the running log daemon.

A message of settings is a number and, as descriptors, a memory file with the settings (JSON) and the eventfds that
wake the daemon for listeners that are new to it. A message of events (posts of the ledger) is a number and the events
as JSON. The answer is the number. Crash: the socket preserves message boundaries, so a daemon that dies leaves its
successor whole messages only.
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

MAX_DESCRIPTORS = 250
"""Limit for the descriptors of a message, below Linux's SCM_MAX_FD of 253. More eventfds take several messages."""
ANSWER_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.05
MAX_MESSAGE_BYTES = 64 << 10
MAX_EVENTS = 20
"""Limit for the events of a message; ASCII texts of ``timeline.MAX_TEXT_LENGTH`` fit into ``MAX_MESSAGE_BYTES``."""


@dataclass(frozen=True, slots=True)
class NewSettings:
    """A message of settings: ``settings`` as dumped, ``wakes`` the eventfds by listener (None: descriptors ran out)."""

    number: int
    settings: dict[str, Any]
    wakes: dict[str, int | None]


@dataclass(frozen=True, slots=True)
class NewEvents:
    """A message of events."""

    number: int
    events: list[dict[str, Any]]


class Channel:
    """The supervisor's end of the channel, and the daemon's end until the daemon inherits it."""

    def __init__(self) -> None:
        self._supervisor_end, self._daemon_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._supervisor_end.settimeout(POLL_INTERVAL_S)
        self._number = 0
        self.answered = 0
        """Messages up to this number are carried out."""

    @property
    def descriptor(self) -> int:
        """Descriptor of the daemon's end."""
        return self._daemon_end.fileno()

    def send_settings(
        self,
        settings: dict[str, Any],
        wakes: Mapping[str, int],
        is_running: Callable[[], bool],
        tick: Callable[[], None],
    ) -> bool:
        """Send settings and wait for the answer; return whether the daemon answered.

        Waits while ``is_running``, calling ``tick``. Raises OSError if they cannot be sent now: descriptors have run
        out, or the daemon has not read for long.
        """
        for part in _split(wakes):
            self._send(settings, part)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while is_running() and time.monotonic() < deadline:
            tick()
            if self._receive_answer() == self._number:
                return True
        return False

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> int:
        """Send events without waiting; return the number of the message, or 0 to retry later.

        The daemon answers the number once the events are stored.
        """
        data = json.dumps(events).encode()
        try:
            self._supervisor_end.settimeout(0)
            # Without blocking: the supervisor must not wait for a daemon that does not read.
            self._supervisor_end.send((self._number + 1).to_bytes(8, "little") + data)
        except OSError:
            return 0
        finally:
            self._supervisor_end.settimeout(POLL_INTERVAL_S)
        self._number += 1
        return self._number

    def poll_answers(self) -> int:
        """Return the number of the last answered message, without waiting."""
        self._supervisor_end.settimeout(0)
        try:
            previous = -1
            while previous != self.answered:
                previous = self.answered
                self._receive_answer()
        finally:
            self._supervisor_end.settimeout(POLL_INTERVAL_S)
        return self.answered

    def _send(self, settings: dict[str, Any], wakes: Mapping[str, int]) -> None:
        self._number += 1
        document = json.dumps({"settings": settings, "wakes": list(wakes)}).encode()
        # Settings may be longer than a message, so they travel in a memory file.
        file = os.memfd_create("penstock-settings")
        try:
            with os.fdopen(os.dup(file), "wb") as writing:
                writing.write(document)
            socket.send_fds(self._supervisor_end, [self._number.to_bytes(8, "little")], [file, *wakes.values()])
        finally:
            os.close(file)

    def discard_unread(self) -> None:
        """Discard messages that no daemon has read."""
        room = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
        with contextlib.suppress(BlockingIOError):
            while True:  # Workaround: socket.recv_fds of Python 3.11 ignores its flags
                for _, _, data in self._daemon_end.recvmsg(8, room, socket.MSG_DONTWAIT)[1]:
                    for descriptor in memoryview(data).cast("i"):
                        os.close(descriptor)

    def _receive_answer(self) -> int:
        with contextlib.suppress(OSError):  # nothing yet
            self.answered = max(self.answered, int.from_bytes(self._supervisor_end.recv(8), "little"))
        return self.answered

    def close(self) -> None:
        """Close both ends."""
        self._supervisor_end.close()
        self._daemon_end.close()


def _split(wakes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Split ``wakes`` into parts that fit into a message with its file; yield an empty part if there are none."""
    per_message, names = MAX_DESCRIPTORS - 1, list(wakes)
    for begin in range(0, max(len(names), 1), per_message):
        yield {name: wakes[name] for name in names[begin : begin + per_message]}


class DaemonEnd:
    """The daemon's end of the channel."""

    def __init__(self, descriptor: int) -> None:
        self._sock = socket.socket(fileno=descriptor)
        self._sock.settimeout(None)

    def receive(self) -> NewSettings | NewEvents | None:
        """Wait for the next message and return it; None if the supervisor has closed its end."""
        data, descriptors, _, _ = socket.recv_fds(self._sock, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS)
        number, events = data[:8], data[8:]
        if not number:
            return None
        if events:
            return NewEvents(int.from_bytes(number, "little"), json.loads(events))
        if not descriptors:
            raise OSError(errno.EMFILE, "new settings cannot be received: no file descriptor is free")
        with os.fdopen(descriptors[0], "rb") as file:
            file.seek(0)
            document = json.load(file)
        wakes: dict[str, int | None] = dict(zip_longest(document["wakes"], descriptors[1:]))
        return NewSettings(int.from_bytes(number, "little"), document["settings"], wakes)

    def answer(self, message: NewSettings | NewEvents) -> None:
        """Confirm that a message is carried out."""
        self._sock.send(message.number.to_bytes(8, "little"))

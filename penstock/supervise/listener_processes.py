"""One listener as the supervisor has it: its socket, what wakes its readers, its receiver and forwarders."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.config import BufferConfig, ForwardedHandler, ListenerConfig
from penstock.handover.paths import LOG, state_file
from penstock.handover.state_page import STATISTICS, StatePage
from penstock.ingest.sockets import ask_buffer, cannot_listen, granted_buffer, open_socket, share_port, turn_away
from penstock.process.child import Child
from penstock.wire.codecs import CODECS

RECEIVER = "penstock.ingest.receiver"
FORWARDER = "penstock.sinks.forwarder"
_LOGGER = logging.getLogger(__name__)


class ListenerProcesses:
    """A listener's processes and what is handed down to them. Raises CannotListen.

    ``folder`` is that of the log buffers.
    """

    def __init__(
        self, listener: ListenerConfig, buffer: BufferConfig, folder: Path, beside: Sequence[socket.socket] = ()
    ) -> None:
        """``beside``: sockets that have the address still; it takes nothing until ``let_in``, when they are closed."""
        self.listener = listener
        self._buffer, self._folder = buffer, folder
        self.sock = open_socket(listener, beside)
        self._check_granted()
        self._wakes: dict[str, int] = {}
        self._spare: dict[str, int] = {}
        self.prepare(listener)
        self.forwarders: dict[str, Child] = {}
        self._add_forwarders()
        self.receiver = self._receiver()

    @property
    def wake(self) -> int:
        """The eventfd that wakes the log daemon."""
        return self._wakes[LOG]

    @property
    def children(self) -> list[Child]:
        """Its receiver, then its forwarders."""
        return [self.receiver, *self.forwarders.values()]

    def is_taking(self) -> bool:
        """Whether the receiver that runs has said that it takes messages."""
        pid, path = self.receiver.pid, state_file(self._folder, self.listener.name)
        if pid is None or not path.exists():
            return False
        page = StatePage(path)
        try:
            return bool((page.read(STATISTICS) or {}).get("pid") == pid)
        finally:
            page.close()

    def leaving(self, listener: ListenerConfig | None) -> list[Child]:
        """The forwarders that end when the listener becomes ``listener`` (None: goes)."""
        wanted = {handler.label: handler for handler in listener.forwarded} if listener else {}
        known = {handler.label: handler for handler in self.listener.forwarded}
        return [child for label, child in self.forwarders.items() if wanted.get(label) != known[label]]

    def prepare(self, listener: ListenerConfig) -> None:
        """Open what ``become`` will need, so that it cannot fail. Raises CannotListen; then all is as before."""
        try:
            for label in [LOG, *(handler.label for handler in listener.forwarded)]:
                if label not in self._wakes and label not in self._spare:
                    self._spare[label] = _event()
        except OSError as error:
            self.withdraw()
            if not self._wakes:
                self.close()
            raise cannot_listen(listener, error) from None
        if not self._wakes:
            self._wakes[LOG] = self._spare.pop(LOG)
        share_port(self.sock, listener)

    def withdraw(self) -> None:
        """Close what was prepared and is not needed."""
        while self._spare:
            os.close(self._spare.popitem()[1])

    def become(self, listener: ListenerConfig) -> list[Child]:
        """Be ``listener`` from now on, its socket as it was; the processes to be started.

        Those of them that ran have ended before this is called. It cannot fail where it was prepared.
        """
        self.prepare(listener)
        gone, restarts = self.leaving(listener), takes(self.listener) != takes(listener)
        self.listener = listener
        self._forget(gone)
        started = self._add_forwarders()
        if not restarts:
            return started
        ask_buffer(self.sock, listener.so_rcvbuf)
        self._check_granted()
        self.receiver = self._receiver()
        return [self.receiver, *started]

    def turn_away(self) -> None:
        """Have the kernel take nothing more, while what it took can still be read (UDP)."""
        turn_away(self.sock)

    def close(self) -> None:
        """Close what was opened."""
        self.sock.close()
        self.withdraw()
        for wake in self._wakes.values():
            os.close(wake)

    def _forget(self, gone: list[Child]) -> None:
        """Of a handler that comes back otherwise, the receiver goes on waking the reader by the same eventfd."""
        wanted = {handler.label for handler in self.listener.forwarded}
        for label in [label for label, child in self.forwarders.items() if child in gone]:
            del self.forwarders[label]
            if label not in wanted:
                os.close(self._wakes.pop(label))

    def _add_forwarders(self) -> list[Child]:
        """Those that are not there yet."""
        added = []
        for handler in self.listener.forwarded:
            if handler.label not in self.forwarders:
                if handler.label not in self._wakes:
                    self._wakes[handler.label] = self._spare.pop(handler.label)
                self.forwarders[handler.label] = self._forwarder(handler)
                added.append(self.forwarders[handler.label])
        return added

    def _receiver(self) -> Child:
        sock, wakes = self.sock.fileno(), list(self._wakes.values())
        task = {
            "listener": self.listener.model_dump(mode="json"),
            "buffer": self._buffer.model_dump(mode="json"),
            "folder": str(self._folder),
            "socket": sock,
            "wakes": wakes,
        }
        forked = self.listener.codec in CODECS  # an operator's own is loaded anew by each process
        return Child(f"receiver {self.listener.name}", RECEIVER, task, [sock, *wakes], forked=forked)

    def _forwarder(self, handler: ForwardedHandler) -> Child:
        wake = self._wakes[handler.label]
        task = {
            "listener": self.listener.name,
            "handler": handler.model_dump(mode="json"),
            "folder": str(self._folder),
            "wake": wake,
        }
        return Child(f"forwarder {self.listener.name} {handler.label}", FORWARDER, task, [wake])

    def _check_granted(self) -> None:
        granted, asked = granted_buffer(self.sock), self.listener.so_rcvbuf
        if self.listener.protocol == "udp" and granted < asked:
            told = f"the kernel grants {granted} bytes of receive buffer instead of {asked}"
            allow = f"sysctl -w net.core.rmem_max={asked}"
            _LOGGER.warning("listener %r: %s; allow it with: %s", self.listener.name, told, allow)


def takes(listener: ListenerConfig) -> Any:
    """What a receiver is started with, as far as it looks at it: of handlers, who reads and what may be dropped."""
    handlers = [(handler.label, handler.overflow, handler in listener.routed) for handler in listener.handlers]
    return listener.model_dump(exclude={"handlers"}), handlers, listener.log


def _event() -> int:
    return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

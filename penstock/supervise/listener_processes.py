"""The processes of a listener, with its socket and the eventfds that wake its readers."""

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
from penstock.ingest.local_sockets import SMALL_QUEUE_LENGTH, queue_length, set_file_access
from penstock.ingest.sockets import (
    cannot_listen,
    granted_buffer,
    open_socket,
    refuse_connections,
    request_buffer,
    share_port,
    turn_away,
)
from penstock.process.child import Child
from penstock.supervise.sd_notify import keeps_sockets
from penstock.wire.codecs import CODECS

RECEIVER = "penstock.ingest.receiver"
FORWARDER = "penstock.sinks.forwarder"
_LOGGER = logging.getLogger(__name__)


class ListenerProcesses:
    """A listener's processes and the descriptors that they inherit. Raises CannotListen. Owned by the supervisor.

    ``folder`` has the log buffers.
    """

    def __init__(
        self,
        listener: ListenerConfig,
        buffer: BufferConfig,
        folder: Path,
        old_sockets: Sequence[socket.socket] = (),
        inherited: socket.socket | None = None,
    ) -> None:
        """Open the socket, or take the ``inherited`` one.

        ``old_sockets`` still have the address: nothing is accepted until ``let_in``, after they are closed.
        """
        self.listener = listener
        self._buffer, self._folder = buffer, folder
        self.sock = inherited or open_socket(listener, old_sockets)
        # A unit of systemd that opened the socket fails if it does not listen once the service ends.
        self._must_listen = inherited is not None and keeps_sockets()
        if inherited:
            request_buffer(inherited, listener.so_rcvbuf)
        self._warn_of_small_buffer()
        self._wakes: dict[str, int] = {}
        self._spare: dict[str, int] = {}
        self.prepare(listener)
        self.forwarders: dict[str, Child] = {}
        self._add_forwarders()
        self.receiver = self._new_receiver()

    @property
    def wake(self) -> int:
        """Eventfd that wakes the log daemon."""
        return self._wakes[LOG]

    @property
    def children(self) -> list[Child]:
        """The receiver, then the forwarders."""
        return [self.receiver, *self.forwarders.values()]

    def is_accepting(self) -> bool:
        """Report whether the running receiver has said that it accepts messages."""
        pid, path = self.receiver.pid, state_file(self._folder, self.listener.name)
        if pid is None or not path.exists():
            return False
        page = StatePage(path)
        try:
            # The page outlives receivers: only the process id shows that the running one wrote it.
            return bool((page.read(STATISTICS) or {}).get("pid") == pid)
        finally:
            page.close()

    def ending_forwarders(self, listener: ListenerConfig | None) -> list[Child]:
        """Return the forwarders that must end if the listener becomes ``listener`` (None: is removed)."""
        new_handlers = {handler.label: handler for handler in listener.forwarded} if listener else {}
        current_handlers = {handler.label: handler for handler in self.listener.forwarded}
        return [child for label, child in self.forwarders.items() if new_handlers.get(label) != current_handlers[label]]

    def prepare(self, listener: ListenerConfig) -> None:
        """Open everything that ``change_to`` needs, so that it cannot fail.

        Raises CannotListen, and then nothing has changed.
        """
        try:
            for label in [LOG, *(handler.label for handler in listener.forwarded)]:
                if label not in self._wakes and label not in self._spare:
                    self._spare[label] = _new_eventfd()
        except OSError as error:
            self.withdraw()
            if not self._wakes:
                self.close()
            raise cannot_listen(listener, error) from None
        if not self._wakes:
            self._wakes[LOG] = self._spare.pop(LOG)
        share_port(self.sock, listener)

    def withdraw(self) -> None:
        """Close prepared descriptors that are not in use."""
        while self._spare:
            os.close(self._spare.popitem()[1])

    def change_to(self, listener: ListenerConfig) -> list[Child]:
        """Change to the configuration ``listener`` on the same socket; return the processes that must be started.

        The caller has ended the processes that change. Cannot fail after ``prepare``.
        """
        self.prepare(listener)
        ended_forwarders, restarts = (
            self.ending_forwarders(listener),
            receiver_inputs(self.listener) != receiver_inputs(listener),
        )
        # Otherwise they stay as they are: those of a socket that systemd opened are its unit's.
        has_new_access = (self.listener.mode, self.listener.owner) != (listener.mode, listener.owner)
        self.listener = listener
        self._remove_forwarders(ended_forwarders)
        started = self._add_forwarders()
        if not restarts:
            return started
        request_buffer(self.sock, listener.so_rcvbuf)
        if listener.is_local and has_new_access:
            self._change_file_access()
        self._warn_of_small_buffer()
        self.receiver = self._new_receiver()
        return [self.receiver, *started]

    def _change_file_access(self) -> None:
        try:
            set_file_access(self.listener)
        except (OSError, ValueError) as error:
            _LOGGER.error("listener %r: %s: %s", self.listener.name, self.listener.path, error)

    @property
    def endpoint(self) -> list[str | int]:
        """Host and port of the socket, or its file and 0."""
        return [self.listener.path, 0] if self.listener.is_local else list(self.sock.getsockname()[:2])

    def turn_away(self) -> None:
        """Stop accepting; what the kernel has accepted (UDP) can still be read."""
        turn_away(self.sock)

    def refuse_connections(self) -> None:
        """Refuse connections until a receiver has started: accepted ones would stay unread."""
        if not self._must_listen:
            refuse_connections(self.sock)

    def close(self) -> None:
        """Close all descriptors."""
        self.sock.close()
        self.withdraw()
        for wake in self._wakes.values():
            os.close(wake)

    def _remove_forwarders(self, ended_forwarders: list[Child]) -> None:
        new_labels = {handler.label for handler in self.listener.forwarded}
        for label in [label for label, child in self.forwarders.items() if child in ended_forwarders]:
            del self.forwarders[label]
            # A handler that only changes keeps its eventfd, because the receiver continues to signal that one.
            if label not in new_labels:
                os.close(self._wakes.pop(label))

    def _add_forwarders(self) -> list[Child]:
        """Add missing forwarders and return them."""
        added = []
        for handler in self.listener.forwarded:
            if handler.label not in self.forwarders:
                if handler.label not in self._wakes:
                    self._wakes[handler.label] = self._spare.pop(handler.label)
                self.forwarders[handler.label] = self._new_forwarder(handler)
                added.append(self.forwarders[handler.label])
        return added

    def _new_receiver(self) -> Child:
        sock, wakes = self.sock.fileno(), list(self._wakes.values())
        task = {
            "listener": self.listener.model_dump(mode="json"),
            "buffer": self._buffer.model_dump(mode="json"),
            "folder": str(self._folder),
            "socket": sock,
            "wakes": wakes,
        }
        forked = self.listener.codec in CODECS  # each process loads a user's codec itself
        return Child(f"receiver {self.listener.name}", RECEIVER, task, [sock, *wakes], forked=forked)

    def _new_forwarder(self, handler: ForwardedHandler) -> Child:
        wake = self._wakes[handler.label]
        task = {
            "listener": self.listener.name,
            "handler": handler.model_dump(mode="json"),
            "folder": str(self._folder),
            "wake": wake,
        }
        return Child(f"forwarder {self.listener.name} {handler.label}", FORWARDER, task, [wake])

    def _warn_of_small_buffer(self) -> None:
        granted, requested = granted_buffer(self.sock), self.listener.so_rcvbuf
        if self.listener.is_local:
            self._warn_of_short_queue()
        elif self.listener.takes_datagrams and granted < requested:
            shortage = f"the kernel grants {granted} bytes of receive buffer instead of {requested}"
            allow = f"sysctl -w net.core.rmem_max={requested}"
            _LOGGER.warning("listener %r: %s; allow it with: %s", self.listener.name, shortage, allow)

    def _warn_of_short_queue(self) -> None:
        if self.listener.takes_datagrams and (length := queue_length()) < SMALL_QUEUE_LENGTH:
            _LOGGER.warning(
                "listener %r: senders wait once %d messages are unread; allow more before the start with: "
                "sysctl -w net.unix.max_dgram_qlen=512",
                self.listener.name,
                length,
            )


def receiver_inputs(listener: ListenerConfig) -> Any:
    """Return the part of a configuration that its receiver depends on.

    Of handlers these are the readers and what may be dropped.
    """
    handlers = [(handler.label, handler.overflow, handler in listener.routed) for handler in listener.handlers]
    return listener.model_dump(exclude={"handlers"}), handlers, listener.log


def _new_eventfd() -> int:
    return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

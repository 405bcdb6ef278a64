"""The supervisor: opens the sockets and slot memory, hands them down, starts its children again when they die."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.config import ConfigError, ListenerConfig, Settings
from penstock.ingest.frames import frame_length, least_frame
from penstock.ingest.process import Child
from penstock.ingest.sockets import CannotListen, check_address, granted_buffer, open_socket

RECEIVER = "penstock.ingest.receiver"
DAEMON = "penstock.server.daemon"
CHECK_EVERY = 0.1
ENDPOINTS = "endpoints.json"
"""In the data directory: the addresses in use and the process ids."""


class AlreadyRunning(RuntimeError):
    """Another penstock uses this data directory."""


class Supervisor:
    """One receiver process per listener and one log daemon, started and started again.

    Raises AlreadyRunning, CannotListen and ConfigError.
    """

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        for listener in settings.listener:
            _check_frame(listener, settings.buffer.term_length)
        settings.buffers.mkdir(parents=True, exist_ok=True)
        settings.topics.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(settings.data_dir)
        self._sockets: dict[str, socket.socket] = {}
        self._wakes: dict[str, int] = {}
        self.children: list[Child] = []
        self._endpoints: dict[str, Any] = {}
        self._said = ""
        try:
            for key, address in (("log.http", settings.log.http), ("log.grpc", settings.log.grpc)):
                check_address(key, address)
            for listener in settings.listener:
                self._open(listener)
        except CannotListen:
            self._close()
            raise

    def _open(self, listener: ListenerConfig) -> None:
        sock = open_socket(listener)
        self._sockets[listener.name] = sock
        self._wakes[listener.name] = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        granted = granted_buffer(sock)
        if listener.protocol == "udp" and granted < listener.so_rcvbuf:
            self._say(
                f"listener {listener.name!r}: the kernel grants {granted} bytes of receive buffer instead of "
                f"{listener.so_rcvbuf}; allow it with: sysctl -w net.core.rmem_max={listener.so_rcvbuf}"
            )

    def start(self) -> None:
        """Start all children."""
        for listener in self._settings.listener:
            self.children.append(self._receiver(listener))
        task = {"settings": self._settings.model_dump(mode="json"), "wakes": self._wakes}
        self.children.append(Child("log daemon", DAEMON, task, list(self._wakes.values())))
        for child in self.children:
            child.start()
        self._write_endpoints()

    def _receiver(self, listener: ListenerConfig) -> Child:
        sock, wake = self._sockets[listener.name].fileno(), self._wakes[listener.name]
        task = {
            "listener": listener.model_dump(mode="json"),
            "buffer": self._settings.buffer.model_dump(mode="json"),
            "folder": str(self._settings.buffers),
            "socket": sock,
            "wake": wake,
        }
        return Child(f"receiver {listener.name}", RECEIVER, task, [sock, wake])

    def check(self) -> None:
        """Start again what has died."""
        said = [line for child in self.children if (line := child.check())]
        for line in said:
            self._say(line)
        if said or self._endpoints.get("pids") != self._pids():
            self._write_endpoints()

    def run(self, stopping: Callable[[], bool]) -> None:
        """Look after the children until ``stopping``."""
        while not stopping():
            self.check()
            time.sleep(CHECK_EVERY)

    def stop(self) -> None:
        """Stop the receivers first, then the daemon once it has taken what they left."""
        for group in (self.children[:-1], self.children[-1:]):
            until = time.monotonic() + self._settings.shutdown_time
            for child in group:
                child.stop()
            for child in group:
                if not child.wait(until):
                    self._say(f"{child.name} did not end within shutdown_time and was killed; the next start goes on")
        self._close()

    def _close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        for wake in self._wakes.values():
            os.close(wake)
        (self._settings.data_dir / ENDPOINTS).unlink(missing_ok=True)
        os.close(self._lock)

    def _pids(self) -> dict[str, int | None]:
        return {child.name: child.pid for child in self.children}

    def _write_endpoints(self) -> None:
        endpoints = {
            "supervisor": os.getpid(),
            "pids": self._pids(),
            "listeners": {name: list(sock.getsockname()[:2]) for name, sock in self._sockets.items()},
            "http": self._settings.log.http,
            "grpc": self._settings.log.grpc,
        }
        path = self._settings.data_dir / ENDPOINTS
        draft = path.with_suffix(".new")
        try:
            draft.write_text(json.dumps(endpoints))
            draft.rename(path)
            self._endpoints = endpoints
        except OSError as error:  # a full disk: tried again at the next check
            self._say_once(f"{path}: cannot be written: {error.strerror}")

    def _say_once(self, line: str) -> None:
        if line != self._said:
            self._said = line
            self._say(line)


def _check_frame(listener: ListenerConfig, term_length: int) -> None:
    needed, length = least_frame(listener), frame_length(term_length)
    if needed > length:
        key = "max_line" if listener.protocol == "tcp" else "defrag.max_size"
        raise ConfigError(
            f"buffer.term_length: frames of {length} bytes (an eighth of a term) cannot hold the {needed} bytes "
            f"that listener.{listener.name}.{key} may need: make one larger or the other smaller"
        )


def _lock(data_dir: Path) -> int:
    descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(f"data_dir: another penstock uses {data_dir}") from None
    return descriptor

"""The supervisor: opens the sockets and slot memory, hands them down, starts its children again when they die."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.config import ConfigError, ConsoleHandler, DiscardHandler, ForwardedHandler, ListenerConfig, Settings
from penstock.ingest.files import LOG
from penstock.ingest.frames import frame_length, least_frame
from penstock.ingest.leavers import see_off
from penstock.ingest.process import Child
from penstock.ingest.sockets import CannotListen, check_address, granted_buffer, open_socket

RECEIVER = "penstock.ingest.receiver"
FORWARDER = "penstock.sinks.forwarder"
HANDLER_CHECK = "penstock.sinks.check"
DAEMON = "penstock.server.daemon"
CHECK_EVERY = 0.1
ENDPOINTS = "endpoints.json"
"""In the data directory: the addresses in use and the process ids."""


class AlreadyRunning(RuntimeError):
    """Another penstock uses this data directory."""


class Supervisor:
    """Per listener a receiver process and a forwarder process per handler, and one log daemon: kept running.

    Raises AlreadyRunning, CannotListen and ConfigError.
    """

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        for listener in settings.listener:
            _check_frame(listener, settings.buffer.term_length)
        _check_handlers(settings)
        settings.buffers.mkdir(parents=True, exist_ok=True)
        settings.topics.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(settings.data_dir)
        self._sockets: dict[str, socket.socket] = {}
        self._wakes: dict[str, dict[str, int]] = {}
        self.children: list[Child] = []
        self._receivers: list[Child] = []
        self._readers: list[Child] = []
        self._endpoints: dict[str, Any] = {}
        self._said = ""
        for line in _left_out(settings):
            self._say(line)
        for line in see_off(settings.buffers, {x.name: {h.label for h in x.forwarded} for x in settings.listener}):
            self._say(line)
        try:
            for key in ("http", "grpc", "flight"):
                if address := getattr(settings.log, key):
                    check_address(f"log.{key}", address)
            for listener in settings.listener:
                self._open(listener)
        except CannotListen:
            self._close()
            raise

    def _open(self, listener: ListenerConfig) -> None:
        sock = open_socket(listener)
        self._sockets[listener.name] = sock
        readers = (LOG, *(handler.label for handler in listener.forwarded))
        self._wakes[listener.name] = {reader: os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for reader in readers}
        granted = granted_buffer(sock)
        if listener.protocol == "udp" and granted < listener.so_rcvbuf:
            self._say(
                f"listener {listener.name!r}: the kernel grants {granted} bytes of receive buffer instead of "
                f"{listener.so_rcvbuf}; allow it with: sysctl -w net.core.rmem_max={listener.so_rcvbuf}"
            )

    def start(self) -> None:
        """Start all children."""
        self._receivers = [self._receiver(listener) for listener in self._settings.listener]
        self._readers = [
            self._forwarder(listener, handler) for listener in self._settings.listener for handler in listener.forwarded
        ]
        self._readers.append(self._daemon())
        self.children = self._receivers + self._readers
        for child in self.children:
            child.start()
        self._write_endpoints()

    def _receiver(self, listener: ListenerConfig) -> Child:
        sock, wakes = self._sockets[listener.name].fileno(), list(self._wakes[listener.name].values())
        task = {
            "listener": listener.model_dump(mode="json"),
            "buffer": self._settings.buffer.model_dump(mode="json"),
            "folder": str(self._settings.buffers),
            "socket": sock,
            "wakes": wakes,
        }
        return Child(f"receiver {listener.name}", RECEIVER, task, [sock, *wakes])

    def _forwarder(self, listener: ListenerConfig, handler: ForwardedHandler) -> Child:
        wake = self._wakes[listener.name][handler.label]
        task = {
            "listener": listener.name,
            "handler": handler.model_dump(mode="json"),
            "folder": str(self._settings.buffers),
            "wake": wake,
        }
        return Child(f"forwarder {listener.name} {handler.label}", FORWARDER, task, [wake])

    def _daemon(self) -> Child:
        wakes = {name: readers[LOG] for name, readers in self._wakes.items()}
        task = {"settings": self._settings.model_dump(mode="json"), "wakes": wakes}
        return Child("log daemon", DAEMON, task, list(wakes.values()))

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
        """Stop the receivers first, then those who read once they have taken what is left."""
        for group in (self._receivers, self._readers):
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
        for wakes in self._wakes.values():
            for wake in wakes.values():
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
            "flight": self._settings.log.flight,
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


def _left_out(settings: Settings) -> Iterator[str]:
    """A line for each handler that gets nothing, as one before it keeps the messages to itself."""
    for listener in settings.listener:
        last = listener.routed[-1].label
        for handler in listener.handlers[len(listener.routed) :]:
            yield f"listener {listener.name!r}: handler {handler.label!r} gets nothing: {last!r} does not propagate"


def _check_handlers(settings: Settings) -> None:
    """Have each handler made once, in a process of its own: whatever is wrong with its settings stops the start."""
    given = [
        {"listener": listener.name, "handler": handler.model_dump(mode="json")}
        for listener in settings.listener
        for handler in listener.forwarded
        if not isinstance(handler, ConsoleHandler | DiscardHandler)
    ]
    if not given:
        return
    command = [sys.executable, "-m", HANDLER_CHECK]
    checked = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=False)
    if checked.returncode:
        raise ConfigError(checked.stdout.strip() or checked.stderr.strip())


def _lock(data_dir: Path) -> int:
    descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(f"data_dir: another penstock uses {data_dir}") from None
    return descriptor

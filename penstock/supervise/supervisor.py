"""The supervisor: opens the sockets and slot memory, hands them down, starts its children again when they die."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.config import ConfigError, ListenerConfig, Settings
from penstock.config.reloadable import differing, in_force
from penstock.errors import PenstockError
from penstock.files.file_system import OS, replace_durably
from penstock.handover.frame_size import frame_length, min_frame_length
from penstock.ingest.sockets import CannotListen, check_address
from penstock.process.child import Child
from penstock.process.kernel import raise_file_limit
from penstock.process.tuning import freeze_loaded_objects
from penstock.supervise.daemon_channel import Channel
from penstock.supervise.endpoints import ENDPOINTS
from penstock.supervise.handler_checks import check_handlers
from penstock.supervise.listener_processes import ListenerProcesses
from penstock.supervise.listener_swap import ListenerSwap
from penstock.supervise.removed_handlers import settle_removed
from penstock.supervise.timeline import Timeline
from penstock.wire.codecs import CODECS

DAEMON = "penstock.server.daemon"
CHECK_EVERY = 0.1
LIVES = 0.5
"""Seconds after which a process that is started again is taken as back, where it does not say so itself."""
PARTING = 1.0
"""Seconds that the daemon has to write down that it will be stopped."""
EVERYWHERE = "*"
LOCK = "lock"
_LOGGER = logging.getLogger(__name__)


class AlreadyRunning(PenstockError, RuntimeError):
    """Another penstock uses this data directory."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload did: ``applied`` in words, and the keys that ``wait`` for the next start."""

    applied: list[str]
    waiting: list[str]


class Supervisor:
    """Per listener a receiver process and a forwarder process per handler, and one log daemon: kept running.

    Raises AlreadyRunning, CannotListen and ConfigError.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nobody multiplies matrices
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # another one takes 4 MiB to begin with
        raise_file_limit()
        check_listeners(settings, settings.listener)
        make_folders(settings)
        self._lock = _lock(settings.data_dir)
        self._intakes: dict[str, ListenerProcesses] = {}
        self._channel = Channel()
        self._unknown: set[ListenerProcesses] = set()  # to the daemon
        self._has_to_tell = False
        self.timeline = Timeline(self._channel)
        self._endpoints: dict[str, Any] = {}
        _report_left_out(settings)
        settle_removed(settings.buffers, {x.name: {h.label for h in x.forwarded} for x in settings.listener})
        try:
            for key, address in settings.log.addresses.items():
                check_address(key, address)
            for listener in settings.listener:
                self._intakes[listener.name] = ListenerProcesses(listener, settings.buffer, settings.buffers)
        except CannotListen:
            self._close()
            raise
        self._daemon = Child("log daemon", DAEMON, *self._daemon_task(), forked=True)

    @property
    def children(self) -> list[Child]:
        """All processes: the receivers first, then who reads what they write."""
        return self._receivers + self._readers

    @property
    def _receivers(self) -> list[Child]:
        return [one.receiver for one in self._intakes.values()]

    @property
    def _readers(self) -> list[Child]:
        return [*(child for one in self._intakes.values() for child in one.forwarders.values()), self._daemon]

    def start(self) -> None:
        """Start all children."""
        _load_what_they_share(self._settings.listener)
        unclean = (self._settings.data_dir / ENDPOINTS).exists()
        self.timeline.happened("start", "the one before it was not stopped, but killed" if unclean else "")
        for child in self.children:
            child.start()
        self._write_endpoints()

    def _daemon_task(self) -> tuple[dict[str, Any], list[int]]:
        """Its task, and the descriptors handed down."""
        wakes, channel = {name: one.wake for name, one in self._intakes.items()}, self._channel.descriptor
        task = {"settings": self._settings.model_dump(mode="json"), "wakes": wakes, "channel": channel}
        return task, [channel, *wakes.values()]

    def reload(self, settings: Settings, tick: Callable[[], None]) -> Reloaded:
        """Go on with ``settings``, calling ``tick`` while that takes time.

        Raises ConfigError and CannotListen: then everything goes on as before.
        """
        settings.security.check_files()
        before, (new, waiting) = self._settings, in_force(self._settings, settings)
        known = {listener.name: listener for listener in before.listener}
        try:
            changed = [listener for listener in new.listener if known.get(listener.name) != listener]
            check_listeners(new, changed, tick)
        except ConfigError as error:
            held = [key for key in waiting if key.startswith("buffer.")]
            raise ConfigError(f"{error} ({held[0]} changes at the next start only)" if held else str(error)) from None
        swap = ListenerSwap(self._intakes, new)
        applied = [*swap.lines, *differing(before, new)]
        if swap.lines:
            _report_left_out(new)
        known_to_daemon = set(self._intakes.values())
        self._intakes = swap.carry_out(tick)
        self._settings = new.model_copy(update={"listener": tuple(one.listener for one in self._intakes.values())})
        if applied:
            self._unknown |= set(self._intakes.values()) - known_to_daemon
            self._has_to_tell = True
            self._tell_daemon(tick)
        self._write_endpoints()
        return Reloaded(applied, waiting)

    def _tell_daemon(self, tick: Callable[[], None]) -> None:
        task, descriptors = self._daemon_task()
        self._daemon.replace_task(task, descriptors)
        running = self._daemon.pid
        if not running:
            self._channel.clear()  # what its predecessor left unread is older than the task its successor gets
        else:
            wakes = {name: one.wake for name, one in self._intakes.items() if one in self._unknown}
            try:
                answered = self._channel.tell(task["settings"], wakes, lambda: self._daemon.pid == running, tick)
            except OSError as error:
                _LOGGER.warning("the log daemon cannot be told of new settings: %s; it is tried again", error.strerror)
                return
            if not answered:
                _LOGGER.warning("the log daemon has not answered yet; it takes on the new settings as soon as it can")
        self._unknown.clear()
        self._has_to_tell = False

    def check(self) -> None:
        """Start again what has died."""
        if self._has_to_tell:
            self._tell_daemon(lambda: None)
        died = {child.name: (child, line) for child in self.children if (line := child.check())}
        for child, line in died.values():
            _LOGGER.warning("%s", line)
            self.timeline.died(child.name, child.cause, self._place(child))
        self._see_who_is_back()
        self.timeline.deliver(self._daemon.pid)
        if died or self._endpoints.get("pids") != self._pids():
            self._write_endpoints()

    def _place(self, child: Child) -> str:
        """Whose losses are those of its absence: of a listener, or of all."""
        places = (name for name, one in self._intakes.items() if one.receiver is child)
        return EVERYWHERE if child is self._daemon else next(places, "")

    def _see_who_is_back(self) -> None:
        """A receiver when it says that it takes messages, the daemon when it has answered, others when they live."""
        running = {child.name: child for child in self.children}
        takes = {one.receiver.name: one for one in self._intakes.values()}
        for name in self.timeline.away:
            child = running.get(name)
            if child is None:  # its listener or handler is configured no more
                back = True
            elif name in takes:
                back = takes[name].is_taking()
            else:
                back = self.timeline.knows(name) if child is self._daemon else child.age > LIVES
            if back:
                self.timeline.back(name)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Look after the children until ``stopping``."""
        while not stopping():
            self.check()
            time.sleep(CHECK_EVERY)

    def stop(self) -> None:
        """Stop the receivers first, then those who read once they have taken what is left."""
        self._tell_of_the_end()
        for group in (self._receivers, self._readers):
            until = time.monotonic() + self._settings.shutdown_time
            for child in group:
                child.stop()
            for child in group:
                if not child.wait(until):
                    text = "%s did not end within shutdown_time and was killed; the next start goes on"
                    _LOGGER.warning(text, child.name)
        self._close()

    def _tell_of_the_end(self) -> None:
        self.timeline.happened("stop")
        until = time.monotonic() + PARTING
        while self._daemon.pid and not self.timeline.told and time.monotonic() < until:
            self.timeline.deliver(self._daemon.pid)
            time.sleep(CHECK_EVERY / 10)

    def _close(self) -> None:
        for one in self._intakes.values():
            one.close()
        self._channel.close()
        (self._settings.data_dir / ENDPOINTS).unlink(missing_ok=True)
        os.close(self._lock)

    def _pids(self) -> dict[str, int | None]:
        return {child.name: child.pid for child in self.children}

    def _write_endpoints(self) -> None:
        endpoints = {
            "supervisor": os.getpid(),
            "pids": self._pids(),
            "listeners": {name: list(one.sock.getsockname()[:2]) for name, one in self._intakes.items()},
            "http": self._settings.log.http,
            "grpc": self._settings.log.grpc,
            "flight": self._settings.log.flight,
        }
        path = self._settings.data_dir / ENDPOINTS
        try:
            replace_durably(OS, path, json.dumps(endpoints).encode(), synced=False)  # of this run only
            self._endpoints = endpoints
        except OSError as error:  # a full disk: tried again at the next check
            _LOGGER.warning("%s: cannot be written: %s", path, error.strerror)


def _load_what_they_share(listeners: Sequence[ListenerConfig]) -> None:
    """What receivers and the log daemon need, before the first of them is forked: it is in memory once."""
    from penstock.ingest.receiver import decoder_of

    for listener in listeners:
        if listener.codec in CODECS:
            decoder_of(listener)
    freeze_loaded_objects()


def make_folders(settings: Settings) -> None:
    """The folders that processes expect. Raises ConfigError where they cannot be made."""
    try:
        settings.buffers.mkdir(parents=True, exist_ok=True)
        settings.topics.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data_dir: {error.filename} cannot be made: {error.strerror}") from None


def check_listeners(
    settings: Settings, listeners: Sequence[ListenerConfig], tick: Callable[[], None] = lambda: None
) -> None:
    """What can be known of ``listeners`` before they are started; ``tick`` is called meanwhile. Raises ConfigError."""
    for listener in listeners:
        _check_frame(listener, settings.buffer.term_length)
        listener.check_tls(listener.name)
    check_handlers(listeners, tick)


def _check_frame(listener: ListenerConfig, term_length: int) -> None:
    needed, length = min_frame_length(listener), frame_length(term_length)
    if needed > length:
        too_small = f"buffer.term_length: frames of {length} bytes (an eighth of a term) cannot hold the {needed} bytes"
        if listener.protocol == "udp" and not listener.defragments:
            raise ConfigError(f"{too_small} that a datagram of listener {listener.name!r} may need: make it larger")
        key = "max_line" if listener.transport == "tcp" else "defrag.max_size"
        raise ConfigError(
            f"{too_small} that listener.{listener.name}.{key} may need: make one larger or the other smaller"
        )


def _report_left_out(settings: Settings) -> None:
    """Reports each handler that gets nothing, as one before it keeps the messages to itself."""
    for listener in settings.listener:
        last = listener.routed[-1].label
        for handler in listener.handlers[len(listener.routed) :]:
            text = "listener %r: handler %r gets nothing: %r does not propagate"
            _LOGGER.warning(text, listener.name, handler.label, last)


def _lock(data_dir: Path) -> int:
    descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(f"data_dir: another penstock uses {data_dir}") from None
    return descriptor

"""The supervisor: opens the sockets, hands them to its children, and restarts children that die.

Invariant: sockets, eventfds and log buffers outlive the children, so a message that the kernel accepted waits during a
restart.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

from penstock.config import ConfigError, ListenerConfig, Settings
from penstock.config.daemon_access import internal_token
from penstock.config.reloadable import differing, in_force
from penstock.files.file_system import OS, replace_durably
from penstock.ingest.sockets import CannotListen, check_address, serves_listener
from penstock.process.child import Child
from penstock.process.kernel import raise_file_limit
from penstock.process.tuning import freeze_loaded_objects
from penstock.supervise.daemon_channel import Channel
from penstock.supervise.data_directory import lock_data_directory, make_folders
from penstock.supervise.endpoints import ENDPOINTS
from penstock.supervise.installation import Installation
from penstock.supervise.listener_checks import check_listeners, warn_of_idle_handlers
from penstock.supervise.listener_processes import ListenerProcesses
from penstock.supervise.listener_swap import ListenerSwap
from penstock.supervise.removed_handlers import settle_removed_handlers
from penstock.supervise.sd_notify import (
    address_text,
    drop_stored_sockets,
    keeps_sockets,
    store_sockets,
    take_stored_sockets,
)
from penstock.supervise.succession import Inheritance, Program, report_step
from penstock.supervise.timeline import Timeline
from penstock.wire.codecs import CODECS

DAEMON, DAEMON_NAME = "penstock.server.daemon", "log daemon"
RELAY = "penstock.client.relay.relay"
CHECK_INTERVAL_S = 0.1
"""Upper bound of the time until a dead child is noticed."""
MIN_UPTIME_S = 0.5
"""Time after which a restarted process counts as running, if it does not report that itself."""
SUCCESSION_POLL_S = 0.002
"""Datagrams wait in the kernel while a receiver is replaced, so its end is noticed within milliseconds."""
RELEASE_TIMEOUT_S = 5.0
"""Time limit for systemd to close sockets that were removed from its store; it does so in a thread of its own."""
STOP_EVENT_TIMEOUT_S = 1.0
"""Time limit for the daemon to store the event of the stop."""
POLL_INTERVAL_S = 0.01
ALL_LISTENERS = "*"
"""Place of losses in the timeline that may concern every listener."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The effect of a reload: ``applied`` changes in words, and the keys ``waiting`` for the next start."""

    applied: list[str]
    waiting: list[str]


class Supervisor:
    """The parent of all processes: a receiver per listener, a forwarder per handler, relays, and one log daemon.

    Raises AlreadyRunning, CannotListen and ConfigError. Threads: all methods are called by the main thread.
    """

    def __init__(self, settings: Settings, inheritance: Inheritance | None = None, up: int = 0) -> None:
        """``inheritance``: of the predecessor that became this process. ``up``: process id of ``penstock up``, or 0."""
        self._settings, self._up, self._inheritance = settings, up, inheritance
        # Children inherit both: no process multiplies matrices, and each thread of OpenBLAS would take memory.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # the other pools reserve 4 MiB at the start
        raise_file_limit()
        check_listeners(settings, settings.listener)
        make_folders(settings)
        self._lock_descriptor = inheritance.lock if inheritance else lock_data_directory(settings.data_dir)
        self._intakes: dict[str, ListenerProcesses] = {}
        self._channel = Channel()
        self._new_to_daemon: set[ListenerProcesses] = set()  # intakes whose eventfds the daemon does not have
        self._has_unsent_settings = False
        self.timeline = Timeline(self._channel)
        self._endpoints: dict[str, Any] = {}
        warn_of_idle_handlers(settings)
        claimed, unclaimed = self._take_sockets()
        self._end_superseded_children(has_unclaimed_sockets=bool(unclaimed))
        # Order: before any child starts, see removed_handlers.
        settle_removed_handlers(
            settings.buffers, {each.name: {h.label for h in each.forwarded} for each in settings.listener}
        )
        try:
            if inheritance is None:  # otherwise a predecessor's daemon still has them
                for key, address in settings.log.addresses.items():
                    check_address(key, address)
            self._open_intakes(claimed, unclaimed)
        except CannotListen:
            self._close()
            raise
        self._daemon = Child(DAEMON_NAME, DAEMON, *self._daemon_task(), forked=True)
        self._relays = {relay.name: _new_relay(settings, relay.name) for relay in settings.relay}

    @property
    def settings(self) -> Settings:
        """The settings in force, after reloads."""
        return self._settings

    @property
    def children(self) -> list[Child]:
        """All processes, the receivers before their readers."""
        return self._receivers + self._readers

    @property
    def _receivers(self) -> list[Child]:
        return [intake.receiver for intake in self._intakes.values()]

    @property
    def _readers(self) -> list[Child]:
        forwarders = (child for intake in self._intakes.values() for child in intake.forwarders.values())
        return [*forwarders, *self._relays.values(), self._daemon]

    def start(self) -> None:
        """Start all children."""
        if self._settings.security.tokens:
            # Order: before the processes that read it, and while no other process of this data directory runs.
            internal_token(self._settings.data_dir, replace=True)
        _load_shared_modules(self._settings.listener)
        if self._inheritance:
            self.timeline.record("start", "restarted with its sockets kept open")
            self._replace_inherited_children(self._inheritance.pids)
        else:
            unclean = (self._settings.data_dir / ENDPOINTS).exists()
            self.timeline.record("start", "the previous run was killed" if unclean else "")
            for child in self.children:
                child.start()
        self._write_endpoints()

    def _take_sockets(self) -> tuple[dict[str, socket.socket], list[tuple[str, socket.socket]]]:
        """Return the sockets that a predecessor or systemd kept: by name of the listener they serve, and all others."""
        if self._inheritance:
            sockets = [(name, socket.socket(fileno=number)) for name, number in self._inheritance.sockets.items()]
        else:
            sockets = take_stored_sockets()
        listeners = {listener.name: listener for listener in self._settings.listener}
        claimed: dict[str, socket.socket] = {}
        unclaimed: list[tuple[str, socket.socket]] = []
        for name, sock in sockets:
            if name in listeners and name not in claimed and serves_listener(sock, listeners[name]):
                claimed[name] = sock
            else:
                unclaimed.append((name, sock))
        return claimed, unclaimed

    def _end_superseded_children(self, has_unclaimed_sockets: bool) -> None:
        """End all inherited children if processes, sockets or log buffers are configured differently now."""
        if not (inheritance := self._inheritance):
            return
        forwarders = {f"forwarder {each.name} {h.label}" for each in self._settings.listener for h in each.forwarded}
        names = {*(f"receiver {each.name}" for each in self._settings.listener), *forwarders, DAEMON_NAME}
        names |= {f"relay {relay.name}" for relay in self._settings.relay}
        has_same_buffers = inheritance.buffer == self._settings.buffer.model_dump(mode="json")
        if inheritance.pids.keys() <= names and has_same_buffers and not has_unclaimed_sockets:
            return
        # Order: readers after the receivers, so that they read the last frames; then the buffers may change.
        receivers = [name for name in inheritance.pids if name.startswith("receiver ")]
        for group in (receivers, [name for name in inheritance.pids if name not in receivers]):
            inheritance.end_children(group, self._settings.shutdown_time)
        self._inheritance = replace(inheritance, pids={})

    def _open_intakes(
        self, claimed: Mapping[str, socket.socket], unclaimed: Sequence[tuple[str, socket.socket]]
    ) -> None:
        """Open the listeners' sockets except for ``claimed`` ones, and close ``unclaimed`` ones."""
        # Order: closed before new sockets are opened, which may have the same addresses: of a renamed listener, or of
        # another type.
        for name, sock in unclaimed:
            if not self._inheritance:
                text = "systemd kept socket %r at %s; it is closed: no listener has this name, address and protocol"
                _LOGGER.warning(text, name, address_text(sock))
            drop_stored_sockets(name)
            sock.close()
        deadline = time.monotonic() + (RELEASE_TIMEOUT_S if unclaimed and keeps_sockets() else 0)
        for listener in self._settings.listener:
            self._intakes[listener.name] = self._open_intake(listener, claimed.get(listener.name), deadline)
        store_sockets({name: intake.sock for name, intake in self._intakes.items()})

    def _open_intake(
        self, listener: ListenerConfig, inherited: socket.socket | None, deadline: float
    ) -> ListenerProcesses:
        """Open a listener; until ``deadline`` its address may be in use. Raises CannotListen."""
        while True:
            try:
                return ListenerProcesses(listener, self._settings.buffer, self._settings.buffers, inherited=inherited)
            except CannotListen:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(SUCCESSION_POLL_S)

    def _replace_inherited_children(self, pids: Mapping[str, int]) -> None:
        """Replace each inherited child as soon as it has ended, the receivers first."""
        for child in self.children:
            if pid := pids.get(child.name):
                child.adopt(pid)
        # Order: one receiver at a time, and the next once it receives: datagrams wait in the kernel in between, and
        # processes that start together delay each other. Frames wait in the log buffers until the readers follow.
        for index, intake in enumerate(self._intakes.values(), 1):
            report_step(self._settings.data_dir, f"replacing receivers, {index} of {len(self._intakes)}")
            deadline = time.monotonic() + self._settings.shutdown_time
            intake.receiver.stop()
            _start_when_ended([intake.receiver], deadline)
            while not intake.is_accepting() and time.monotonic() < deadline:
                time.sleep(SUCCESSION_POLL_S)
        report_step(self._settings.data_dir, "loading the new log daemon")
        # Order: loaded before its predecessor ends, because clients are refused from then on; it is most of the start.
        self._daemon.prepare(time.monotonic() + self._settings.shutdown_time)
        report_step(self._settings.data_dir, "replacing forwarders and log daemon")
        for child in self._readers:
            child.stop()
        _start_when_ended(self._readers, time.monotonic() + self._settings.shutdown_time)
        report_step(self._settings.data_dir, "waiting for the new log daemon")

    def hand_over(self, program: Program, began: int, may_hang_up: bool, is_stopping: Callable[[], bool]) -> NoReturn:
        """Become ``program`` with this supervisor's lock, sockets and children.

        Raises OSError, or ConfigError if ``is_stopping``.
        """
        self._deliver_events()
        program.replace_process(
            Inheritance(
                pids={child.name: child.pid for child in self.children if child.pid},
                began=began,
                may_hang_up=may_hang_up,
                lock=self._lock_descriptor,
                sockets={name: intake.sock.fileno() for name, intake in self._intakes.items()},
                buffer=self._settings.buffer.model_dump(mode="json"),
            ),
            is_stopping,
        )

    def _daemon_task(self) -> tuple[dict[str, Any], list[int]]:
        """Return the daemon's task and the descriptors that it inherits."""
        wakes, channel = {name: intake.wake for name, intake in self._intakes.items()}, self._channel.descriptor
        task = {"settings": self._settings.model_dump(mode="json"), "wakes": wakes, "channel": channel}
        return task, [channel, *wakes.values()]

    def reload(self, settings: Settings, tick: Callable[[], None]) -> Reloaded:
        """Change to ``settings``, calling ``tick`` during waits.

        Raises ConfigError and CannotListen, and then nothing has changed.
        """
        settings.security.check_files()
        current, (new, waiting) = self._settings, in_force(self._settings, settings)
        current_listeners = {listener.name: listener for listener in current.listener}
        try:
            changed = [listener for listener in new.listener if current_listeners.get(listener.name) != listener]
            check_listeners(new, changed, tick)
        except ConfigError as error:
            blocking_keys = [key for key in waiting if key.startswith("buffer.")]
            hint = f" ({blocking_keys[0]} changes at the next start only)" if blocking_keys else ""
            raise ConfigError(f"{error}{hint}") from None
        swap = ListenerSwap(self._intakes, new)
        applied = [*swap.lines, *differing(current, new)]
        if swap.lines:
            warn_of_idle_handlers(new)
        previous_intakes = set(self._intakes.values())
        self._intakes = swap.carry_out(tick)
        for intake in previous_intakes - set(self._intakes.values()):
            drop_stored_sockets(intake.listener.name)
        store_sockets({name: intake.sock for name, intake in self._intakes.items() if intake not in previous_intakes})
        self._settings = new.model_copy(
            update={"listener": tuple(intake.listener for intake in self._intakes.values())}
        )
        if applied:
            self._new_to_daemon |= set(self._intakes.values()) - previous_intakes
            self._has_unsent_settings = True
            self._send_settings(tick)
        self._replace_relays(current)
        self._wait_until_accepting(tick)
        self._write_endpoints()
        return Reloaded(applied, waiting)

    def _wait_until_accepting(self, tick: Callable[[], None]) -> None:
        """Wait for receivers that have just started: senders that follow the reload would be refused."""
        deadline = time.monotonic() + self._settings.shutdown_time
        for intake in self._intakes.values():
            while intake.receiver.pid and not intake.is_accepting():
                if time.monotonic() > deadline:
                    _LOGGER.warning("%s does not accept messages yet", intake.receiver.name)
                    break
                tick()
                time.sleep(POLL_INTERVAL_S)

    def _replace_relays(self, previous: Settings) -> None:
        """Start added and changed relays, and end removed and changed ones, since ``previous``."""
        previous_relays = {relay.name: relay for relay in previous.relay}
        relays = {relay.name: relay for relay in self._settings.relay}
        changed = [name for name in {**previous_relays, **relays} if previous_relays.get(name) != relays.get(name)]
        ending = [self._relays.pop(name) for name in changed if name in self._relays]
        # Crash: a relay may end at any moment; its successor continues at its position.
        for child in ending:
            child.stop()
        deadline = time.monotonic() + self._settings.shutdown_time
        for child in ending:
            child.wait(deadline)
        for name in changed:
            if name in relays:
                self._relays[name] = _new_relay(self._settings, name)
                self._relays[name].start()

    def _send_settings(self, tick: Callable[[], None]) -> None:
        # Order: the task first, so that a daemon that is restarted in between starts with the new settings.
        task, descriptors = self._daemon_task()
        self._daemon.replace_task(task, descriptors)
        pid = self._daemon.pid
        if not pid:
            self._channel.discard_unread()  # unread messages are older than the successor's task
        else:
            wakes = {name: intake.wake for name, intake in self._intakes.items() if intake in self._new_to_daemon}
            try:
                answered = self._channel.send_settings(task["settings"], wakes, lambda: self._daemon.pid == pid, tick)
            except OSError as error:
                _LOGGER.warning("new settings cannot be sent to the log daemon: %s; retrying", error.strerror)
                return
            if not answered:
                _LOGGER.warning(
                    "the log daemon has not confirmed the new settings yet; it applies them as soon as it can"
                )
        self._new_to_daemon.clear()
        self._has_unsent_settings = False

    def check(self) -> None:
        """Restart dead children, send waiting settings and events, and update the endpoints."""
        # An earlier attempt may have failed, for example because descriptors had run out.
        if self._has_unsent_settings:
            self._send_settings(lambda: None)
        deaths = {child.name: (child, line) for child in self.children if (line := child.check())}
        for child, line in deaths.values():
            _LOGGER.warning("%s", line)
            source = self._source_of_losses(child)
            if child.start_failure and source in self._intakes:
                self._intakes[source].refuse_connections()
            self.timeline.record_death(child.name, child.cause, source)
        self._record_returns()
        self.timeline.deliver(self._daemon.pid)
        if deaths or self._endpoints.get("pids") != self._pids():
            self._write_endpoints()

    def _source_of_losses(self, child: Child) -> str:
        """Return the listener to which losses by the death of ``child`` belong; empty for a forwarder."""
        listeners = (name for name, intake in self._intakes.items() if intake.receiver is child)
        return ALL_LISTENERS if child is self._daemon else next(listeners, "")

    def _record_returns(self) -> None:
        """Record returned processes: a receiver that accepts, a daemon that has answered, others by their age."""
        running = {child.name: child for child in self.children}
        intakes = {intake.receiver.name: intake for intake in self._intakes.values()}
        for name in self.timeline.missing_processes:
            child = running.get(name)
            if child is None:  # its listener or handler was removed
                has_returned = True
            elif name in intakes:
                has_returned = intakes[name].is_accepting()
            else:
                has_returned = self.timeline.is_stored(name) if child is self._daemon else child.age > MIN_UPTIME_S
            if has_returned:
                self.timeline.record_return(name)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Watch the children until ``stopping``."""
        while not stopping():
            self.check()
            time.sleep(CHECK_INTERVAL_S)

    def stop(self) -> None:
        """Stop the receivers first, then the readers once they have read everything."""
        self.timeline.record("stop")
        self._deliver_events()
        if not keeps_sockets():
            for intake in self._intakes.values():
                if intake.listener.is_local:
                    intake.turn_away()  # otherwise a sender would believe that its last message was taken
        # Order: readers end after the receivers, so that they read the last frames.
        for group in (self._receivers, self._readers):
            deadline = time.monotonic() + self._settings.shutdown_time
            for child in group:
                child.stop()
            for child in group:
                if not child.wait(deadline):
                    text = "%s did not end within shutdown_time and was killed; the next start continues its work"
                    _LOGGER.warning(text, child.name)
        self._close()

    def _deliver_events(self) -> None:
        deadline = time.monotonic() + STOP_EVENT_TIMEOUT_S
        while self._daemon.pid and not self.timeline.is_delivered and time.monotonic() < deadline:
            self.timeline.deliver(self._daemon.pid)
            time.sleep(POLL_INTERVAL_S)

    def _close(self) -> None:
        for intake in self._intakes.values():
            intake.close()
        self._channel.close()
        path = self._settings.data_dir / ENDPOINTS
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # a failing disk: the next start takes this run for one that was killed
            _LOGGER.warning("%s: cannot be removed: %s", path, error.strerror)
        os.close(self._lock_descriptor)

    def _pids(self) -> dict[str, int | None]:
        return {child.name: child.pid for child in self.children}

    def _write_endpoints(self) -> None:
        endpoints = {
            "supervisor": os.getpid(),
            "pids": self._pids(),
            "listeners": {name: intake.endpoint for name, intake in self._intakes.items()},
            "http": self._settings.log.http,
            "grpc": self._settings.log.grpc,
            "flight": self._settings.log.flight,
            "installation": asdict(Installation.current()),
            **({"up": self._up} if self._up else {}),
        }
        path = self._settings.data_dir / ENDPOINTS
        try:
            replace_durably(OS, path, json.dumps(endpoints).encode(), synced=False)  # of this run only
            self._endpoints = endpoints
        except OSError as error:  # a full disk: the next check retries
            _LOGGER.warning("%s: cannot be written: %s", path, error.strerror)


def _new_relay(settings: Settings, name: str) -> Child:
    return Child(f"relay {name}", RELAY, {"settings": settings.model_dump(mode="json"), "relay": name})


def _start_when_ended(children: Sequence[Child], deadline: float) -> None:
    """Start each child once its previous process has ended, or was killed at ``deadline``."""
    waiting = list(children)
    while waiting:
        for child in [child for child in waiting if child.pid is None or time.monotonic() > deadline]:
            child.wait(deadline)
            child.start()
            waiting.remove(child)
        time.sleep(SUCCESSION_POLL_S)


def _load_shared_modules(listeners: Sequence[ListenerConfig]) -> None:
    """Import what receivers and the log daemon need before they are forked, so that it is in memory once."""
    from penstock.ingest.receiver import make_decoder

    for listener in listeners:
        if listener.codec in CODECS:
            make_decoder(listener)
    # Children share these pages only if the garbage collector does not touch the objects.
    freeze_loaded_objects()


def check_succession(current: Settings, new: Settings) -> None:
    """Check whether a successor of a process with ``current`` may start. Raises ConfigError and CannotListen."""
    if new.data_dir.absolute() != current.data_dir.absolute():
        raise ConfigError(f"data_dir: a restart keeps {current.data_dir}; stop penstock and start it to change it")
    for key, address in new.log.addresses.items():
        if address != current.log.addresses.get(key):
            check_address(key, address)

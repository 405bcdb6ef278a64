"""Replaces listeners when the configuration changes; unchanged listeners are not touched.

Order: everything that can fail is done first, in the constructor, and changes nothing. Then the receivers that are
removed or changed end, after they have published all messages that the kernel accepted for them; then their forwarders
end; then the new processes start on the same addresses.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from penstock.config import BufferConfig, ListenerConfig, Settings
from penstock.ingest.sockets import CannotListen, cannot_listen, let_in
from penstock.process.child import Child
from penstock.supervise.listener_processes import ListenerProcesses, receiver_inputs
from penstock.supervise.removed_handlers import settle_removed_handlers

POLL_INTERVAL_S = 0.05
_LOGGER = logging.getLogger(__name__)


class ListenerSwap:
    """The change from ``intakes`` to the listeners of ``settings``.

    Raises CannotListen, and then nothing has changed.
    """

    def __init__(self, intakes: dict[str, ListenerProcesses], settings: Settings) -> None:
        self._intakes, self._settings = intakes, settings
        configured = {listener.name: listener for listener in settings.listener}
        same_address = {
            name
            for name, intake in intakes.items()
            if name in configured and intake.listener.listening_address == configured[name].listening_address
        }
        self._removed = [intake for name, intake in intakes.items() if name not in same_address]
        self._changed = [
            (intake, configured[name])
            for name, intake in intakes.items()
            if name in same_address and intake.listener != configured[name]
        ]
        self._opened: list[ListenerProcesses] = []
        self._waiting_for_address: list[ListenerProcesses] = []
        try:
            self._prepare([listener for name, listener in configured.items() if name not in same_address])
        except CannotListen:
            self._withdraw()
            raise

    def _prepare(self, new: list[ListenerConfig]) -> None:
        """Open all descriptors; addresses that another listener still has come last."""
        for intake, listener in self._changed:
            intake.prepare(listener)
        holders = {listener.name: self._holders_of_port(listener) for listener in new}
        for listener in sorted(new, key=lambda each: bool(holders[each.name])):
            self._check_file_is_free(listener)
            self._opened.append(self._open(listener, [intake.sock for intake in holders[listener.name]]))
            if holders[listener.name]:
                self._waiting_for_address.append(self._opened[-1])

    def _holders_of_port(self, listener: ListenerConfig) -> list[ListenerProcesses]:
        """Return the removed listeners that still have this port."""
        if listener.is_local:
            return []  # see _check_file_is_free
        address = (listener.transport, listener.port)
        return [
            intake
            for intake in self._removed
            if not intake.listener.is_local and (intake.listener.transport, intake.sock.getsockname()[1]) == address
        ]

    def _check_file_is_free(self, listener: ListenerConfig) -> None:
        """Check that no removed listener has the file of a local one. Raises CannotListen.

        Limit: a file cannot have two sockets, so its listener changes name or protocol only while no process has it.
        """
        for intake in self._removed if listener.is_local else ():
            if intake.listener.path == listener.path:
                reason = f"listener {intake.listener.name!r} has it as {intake.listener.protocol}"
                raise cannot_listen(listener, ValueError(f"{reason}; stop penstock and start it"))

    def _withdraw(self) -> None:
        for intake in self._opened:
            intake.close()
        for intake, _ in self._changed:
            intake.withdraw()

    @property
    def lines(self) -> list[str]:
        """Descriptions of the changed listeners."""
        removed = {intake.listener.name for intake in self._removed}
        added = {intake.listener.name for intake in self._opened}
        changed = {listener.name for _, listener in self._changed} | (removed & added)
        named = [(added - removed, "added"), (removed - added, "removed"), (changed, "changed")]
        return [f"listener {name!r} is {verb}" for names, verb in named for name in sorted(names)]

    def carry_out(self, tick: Callable[[], None]) -> dict[str, ListenerProcesses]:
        """Carry out the change, calling ``tick`` during waits; return the new intakes, with their processes started."""
        for intake in self._removed:
            # Order: sockets first, so that the receivers that end can read all that the kernel accepted.
            intake.turn_away()
        restarted = [
            intake
            for intake, listener in self._changed
            if receiver_inputs(intake.listener) != receiver_inputs(listener)
        ]
        self._end_processes([intake.receiver for intake in [*self._removed, *restarted]], tick)
        # Order: forwarders after the receivers, so that they can still read the last frames.
        ending = [child for intake, listener in self._changed for child in intake.ending_forwarders(listener)]
        self._end_processes(
            [*ending, *(child for intake in self._removed for child in intake.forwarders.values())], tick
        )
        self._settle_removed_handlers()
        children = [child for intake, listener in self._changed for child in intake.change_to(listener)]
        for intake in self._removed:
            intake.close()
        # Order: after the removed listeners have closed their sockets, which have these addresses until then.
        self._open_waiting()
        _start_processes([*children, *(child for intake in self._opened for child in intake.children)])
        return self._in_order({intake.listener.name: intake for intake in self._opened})

    def _open_waiting(self) -> None:
        """Start reception of datagrams on addresses that removed listeners had; other receivers listen themselves."""
        for intake in self._waiting_for_address:
            if not intake.listener.takes_datagrams or intake.listener.shares_port:
                continue  # a shared port was never closed to senders
            try:
                let_in(intake.sock)
            except OSError as error:
                _LOGGER.error("%s", cannot_listen(intake.listener, error))

    def _settle_removed_handlers(self) -> None:
        configured = {
            listener.name: {handler.label for handler in listener.forwarded} for listener in self._settings.listener
        }
        try:
            settle_removed_handlers(self._settings.buffers, configured)
        except OSError as error:  # a full disk: the next start settles the removed handlers
            _LOGGER.error("%s: %s", self._settings.buffers, error.strerror)

    def _end_processes(self, children: list[Child], tick: Callable[[], None]) -> None:
        deadline = time.monotonic() + self._settings.shutdown_time
        for child in children:
            child.stop()
        while any(child.pid for child in children) and time.monotonic() < deadline:
            tick()
            time.sleep(POLL_INTERVAL_S)
        for child in children:
            if not child.wait(deadline):
                _LOGGER.warning("%s did not end within shutdown_time and was killed", child.name)

    def _open(self, listener: ListenerConfig, old_sockets: Sequence[socket.socket]) -> ListenerProcesses:
        buffer: BufferConfig = self._settings.buffer
        folder: Path = self._settings.buffers
        return ListenerProcesses(listener, buffer, folder, old_sockets)

    def _in_order(self, opened: dict[str, ListenerProcesses]) -> dict[str, ListenerProcesses]:
        intakes = {name: intake for name, intake in self._intakes.items() if intake not in self._removed} | opened
        return {
            listener.name: intakes[listener.name] for listener in self._settings.listener if listener.name in intakes
        }


def _start_processes(children: Iterable[Child]) -> None:
    for child in children:
        with contextlib.suppress(OSError):  # the supervisor retries and logs the failure
            child.start()

"""The listeners of a new configuration in the place of the old one's; those that are the same are left alone.

First whatever can fail is tried, and nothing has changed yet. Then the receivers that go or change end, having
published all that the kernel had taken for them, then their forwarders, and the new ones start where they were.
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
from penstock.supervise.listener_processes import ListenerProcesses, takes
from penstock.supervise.removed_handlers import settle_removed

LOOK_EVERY = 0.05
_LOGGER = logging.getLogger(__name__)


class ListenerSwap:
    """From ``intakes`` to the listeners of ``settings``. Raises CannotListen; then everything is as before."""

    def __init__(self, intakes: dict[str, ListenerProcesses], settings: Settings) -> None:
        self._intakes, self._settings = intakes, settings
        wanted = {listener.name: listener for listener in settings.listener}
        stay = {
            name
            for name, one in intakes.items()
            if name in wanted and one.listener.listening_address == wanted[name].listening_address
        }
        self._gone = [one for name, one in intakes.items() if name not in stay]
        self._changed = [(intakes[n], wanted[n]) for n in intakes if n in stay and intakes[n].listener != wanted[n]]
        self._opened: list[ListenerProcesses] = []
        self._shut: list[ListenerProcesses] = []
        try:
            self._prepare([listener for name, listener in wanted.items() if name not in stay])
        except CannotListen:
            self._withdraw()
            raise

    def _prepare(self, new: list[ListenerConfig]) -> None:
        """Open whatever descriptors are needed; last the addresses that another listener has still."""
        for one, listener in self._changed:
            one.prepare(listener)
        taken = {listener.name: self._who_has(listener) for listener in new}
        for listener in sorted(new, key=lambda each: bool(taken[each.name])):
            self._opened.append(self._open(listener, [one.sock for one in taken[listener.name]]))
            if taken[listener.name]:
                self._shut.append(self._opened[-1])

    def _who_has(self, listener: ListenerConfig) -> list[ListenerProcesses]:
        """Those that go and have its port."""
        place = (listener.transport, listener.port)
        return [one for one in self._gone if (one.listener.transport, one.sock.getsockname()[1]) == place]

    def _withdraw(self) -> None:
        for one in self._opened:
            one.close()
        for one, _ in self._changed:
            one.withdraw()

    @property
    def lines(self) -> list[str]:
        """What becomes of which listener."""
        gone = {one.listener.name for one in self._gone}
        new = {one.listener.name for one in self._opened}
        changed = {listener.name for _, listener in self._changed} | (gone & new)
        named = [(new - gone, "added"), (gone - new, "removed"), (changed, "changed")]
        return [f"listener {name!r} is {what}" for names, what in named for name in sorted(names)]

    def carry_out(self, tick: Callable[[], None]) -> dict[str, ListenerProcesses]:
        """Do it, calling ``tick`` meanwhile; the intakes then, their processes started."""
        for one in self._gone:
            one.turn_away()
        restarted = [one for one, listener in self._changed if takes(one.listener) != takes(listener)]
        self._end([one.receiver for one in [*self._gone, *restarted]], tick)
        leaving = [child for one, listener in self._changed for child in one.leaving(listener)]
        self._end([*leaving, *(child for one in self._gone for child in one.forwarders.values())], tick)
        self._see_off()
        children = [child for one, listener in self._changed for child in one.become(listener)]
        for one in self._gone:
            one.close()
        self._let_in()
        _start([*children, *(child for one in self._opened for child in one.children)])
        return self._in_order({one.listener.name: one for one in self._opened})

    def _let_in(self) -> None:
        """The addresses of those that are gone are those of the new ones now."""
        for one in self._shut:
            if one.listener.protocol == "otlp_grpc" or one.listener.shares_port:
                continue  # its receiver's gRPC listens; or it was never turned away
            try:
                let_in(one.sock)
            except OSError as error:
                _LOGGER.error("%s", cannot_listen(one.listener, error))

    def _see_off(self) -> None:
        configured = {x.name: {handler.label for handler in x.forwarded} for x in self._settings.listener}
        try:
            settle_removed(self._settings.buffers, configured)
        except OSError as error:  # a full disk: what waits for handlers that are gone is counted at the next start
            _LOGGER.error("%s: %s", self._settings.buffers, error.strerror)

    def _end(self, children: list[Child], tick: Callable[[], None]) -> None:
        until = time.monotonic() + self._settings.shutdown_time
        for child in children:
            child.stop()
        while any(child.pid for child in children) and time.monotonic() < until:
            tick()
            time.sleep(LOOK_EVERY)
        for child in children:
            if not child.wait(until):
                _LOGGER.warning("%s did not end within shutdown_time and was killed", child.name)

    def _open(self, listener: ListenerConfig, beside: Sequence[socket.socket]) -> ListenerProcesses:
        buffer: BufferConfig = self._settings.buffer
        folder: Path = self._settings.buffers
        return ListenerProcesses(listener, buffer, folder, beside)

    def _in_order(self, opened: dict[str, ListenerProcesses]) -> dict[str, ListenerProcesses]:
        left = {name: one for name, one in self._intakes.items() if one not in self._gone} | opened
        return {listener.name: left[listener.name] for listener in self._settings.listener if listener.name in left}


def _start(children: Iterable[Child]) -> None:
    for child in children:
        with contextlib.suppress(OSError):  # the supervisor tries again, and says so
            child.start()

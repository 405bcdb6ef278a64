"""The listeners of a new configuration in the place of the old one's; those that are the same are left alone.

First whatever can fail is tried, and nothing has changed yet. Then the receivers that go or change end, having
published all that the kernel had taken for them, then their forwarders, and the new ones start where they were.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.config import BufferConfig, ListenerConfig, Settings
from penstock.ingest.sockets import CannotListen, open_socket
from penstock.process.child import Child
from penstock.supervise.listener_processes import ListenerProcesses, address, takes
from penstock.supervise.removed_handlers import settle_removed

LOOK_EVERY = 0.05
_LOGGER = logging.getLogger(__name__)


class ListenerSwap:
    """From ``intakes`` to the listeners of ``settings``. Raises CannotListen; then everything is as before."""

    def __init__(self, intakes: dict[str, ListenerProcesses], settings: Settings) -> None:
        self._intakes, self._settings = intakes, settings
        wanted = {listener.name: listener for listener in settings.listener}
        stay = {name for name, one in intakes.items() if name in wanted and _same_place(one.listener, wanted[name])}
        self._gone = [one for name, one in intakes.items() if name not in stay]
        self._changed = [(intakes[n], wanted[n]) for n in intakes if n in stay and intakes[n].listener != wanted[n]]
        taken = [(one.listener.protocol, one.sock.getsockname()[1]) for one in self._gone]
        new = [listener for name, listener in wanted.items() if name not in stay]
        self._late = [listener for listener in new if (listener.protocol, listener.port) in taken]
        self._opened: list[ListenerProcesses] = []
        try:
            for listener in new:
                if listener in self._late:  # its port is not free yet: at least its host has to be ours
                    open_socket(listener.model_copy(update={"port": 0})).close()
                else:
                    self._opened.append(self._open(listener))
        except CannotListen:
            for one in self._opened:
                one.close()
            raise

    @property
    def lines(self) -> list[str]:
        """What becomes of which listener."""
        gone = {one.listener.name for one in self._gone}
        new = {listener.name for listener in [*(one.listener for one in self._opened), *self._late]}
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
        opened = [*self._opened, *self._open_late()]
        _start([*children, *(child for one in opened for child in one.children)])
        return self._in_order({one.listener.name: one for one in opened})

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

    def _open(self, listener: ListenerConfig) -> ListenerProcesses:
        buffer: BufferConfig = self._settings.buffer
        folder: Path = self._settings.buffers
        return ListenerProcesses(listener, buffer, folder)

    def _open_late(self) -> list[ListenerProcesses]:
        """Those whose address a listener had that is gone now."""
        opened = []
        for listener in self._late:
            try:
                opened.append(self._open(listener))
            except CannotListen as error:
                _LOGGER.error("%s; `penstock reload` tries again", error)
        return opened

    def _in_order(self, opened: dict[str, ListenerProcesses]) -> dict[str, ListenerProcesses]:
        left = {name: one for name, one in self._intakes.items() if one not in self._gone} | opened
        return {listener.name: left[listener.name] for listener in self._settings.listener if listener.name in left}


def _start(children: Iterable[Child]) -> None:
    for child in children:
        with contextlib.suppress(OSError):  # the supervisor tries again, and says so
            child.start()


def _same_place(old: ListenerConfig, new: ListenerConfig) -> bool:
    return address(old) == address(new)

"""Time and sockets for the rooms of receivers, in the place of the system's.

Functions of ``time`` are also defaults of arguments, which were bound when a room was loaded; they are replaced, too.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
import time as system_time
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from penstock.ingest import receiver, slots, sockets, tcp, udp
from penstock.testing.simulation.machine import ROOMS, Machine, VirtualTime, replaced
from penstock.testing.simulation.sockets.kernel import (
    Kernel,
    SimulatedSelect,
    SimulatedSelectors,
    SimulatedSocketModule,
)

SOCKET_ROOMS = (*ROOMS, "ingest", "wire", "counts")


class _ReceiverTime(VirtualTime):
    """The time of receivers: other processes run while one sleeps."""

    def __init__(self, machine: Machine, run_others: Callable[[], None]) -> None:
        super().__init__(machine.clock)
        self._run_others = run_others

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._run_others()


def _functions(rooms: Iterable[str]) -> Iterator[FunctionType]:
    """Yield the functions and methods of loaded rooms."""
    prefixes = tuple(f"penstock.{room}" for room in rooms)
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(prefixes):
            continue
        for member in list(vars(module).values()):
            if getattr(member, "__module__", None) != name:
                continue
            if inspect.isfunction(member):
                yield member
            elif inspect.isclass(member):
                yield from filter(inspect.isfunction, vars(member).values())


@contextlib.contextmanager
def _virtual_defaults(time: VirtualTime) -> Iterator[None]:
    """Replace the functions of ``time`` that are defaults of arguments: they were bound when a room was loaded."""
    real: dict[Any, Any] = {getattr(system_time, name): getattr(time, name) for name in ("time", "monotonic", "sleep")}
    with contextlib.ExitStack() as stack:
        for function in _functions(SOCKET_ROOMS):
            if defaults := function.__defaults__:
                virtual = tuple(real.get(value, value) if callable(value) else value for value in defaults)
                stack.enter_context(replaced(function, "__defaults__", virtual))  # type: ignore[arg-type]
            if named := function.__kwdefaults__:
                changed = {key: real.get(value, value) if callable(value) else value for key, value in named.items()}
                stack.enter_context(replaced(function, "__kwdefaults__", changed))  # type: ignore[arg-type]
        yield


@contextlib.contextmanager
def simulated_receivers(
    machine: Machine, kernel: Kernel, dice: random.Random, run_others: Callable[[], None]
) -> Iterator[None]:
    """Give all rooms virtual time, and receivers the sockets of ``kernel``; they call ``run_others`` as they sleep."""
    receiver_time = _ReceiverTime(machine, run_others)
    replacements: list[tuple[Any, str, object]] = [
        *((module, "time", receiver_time) for module in (receiver, tcp, udp)),
        (slots, "_recvmmsg", kernel.recvmmsg),
        *((module, "boot_id", lambda: f"boot {machine.boots}") for module in (slots, sockets)),
        (udp, "select", SimulatedSelect(kernel)),
        (tcp, "select", SimulatedSelect(kernel)),
        (tcp, "selectors", SimulatedSelectors(dice.shuffle)),
        (receiver, "socket", SimulatedSocketModule(kernel)),
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(machine.running(SOCKET_ROOMS))
        stack.enter_context(_virtual_defaults(receiver_time))
        for replacement in replacements:
            stack.enter_context(replaced(*replacement))
        yield

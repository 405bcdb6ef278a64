"""Why the kernel dropped datagrams of a listener, and the one change that helps."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.console.wording import exact
from penstock.counts import Name
from penstock.process.kernel import PROCESSES

RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
BUSY_SHARE = 0.7
"""Share of a core from which a receiver is the bottleneck, and a larger buffer only delays the drops."""
GROWTH = 4
"""Factor of an advised buffer."""
ABSENCES = ("stopped", "restart")
"""Kinds of events during which no receiver reads."""


@dataclass(frozen=True, slots=True)
class KernelDrops:
    """Facts about a listener's drops. ``absences``: events, with their lost datagrams, in which no receiver read.

    ``granted_bytes`` and ``rmem_max`` are 0, and ``load`` None, if they are unknown, as on another machine.
    """

    listener: str
    granted_bytes: int
    rmem_max: int = 0
    load: float | None = None
    absences: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def gather(
        cls, listener: str, statistics: Mapping[str, Any], events: Iterable[Mapping[str, Any]], since_ms: float
    ) -> KernelDrops:
        """Return the facts from a receiver's statistics, the timeline since ``since_ms`` and this machine."""
        absences = [
            event
            for event in events
            if event["kind"] in ABSENCES
            and event["at"] >= since_ms
            and (event["place"] == listener or event["what"] == f"receiver {listener}")
            and event["lost"].get(Name.KERNEL_DROPPED)
        ]
        rmem_max = 0
        with contextlib.suppress(OSError, ValueError):
            rmem_max = int(RMEM_MAX.read_text())
        load = receiver_load(int(statistics.get("pid") or 0))
        return cls(listener, int(statistics.get("receive_buffer") or 0), rmem_max, load, tuple(absences))

    @property
    def figures(self) -> str:
        """The figures behind the advice, separated by commas."""
        parts = [f"the receive buffer holds {exact(self.granted_bytes)} bytes"] if self.granted_bytes else []
        parts += [f"net.core.rmem_max is {exact(self.rmem_max)}"] if self.rmem_max else []
        parts += [f"the receiver uses {self.load:.0%} of a core"] if self.load is not None else []
        return ", ".join([*parts, *(event["text"] for event in self.absences[:1])])

    @property
    def advice(self) -> str:
        """The one change that helps."""
        if self.absences:
            return "find what stopped the receiver (a debugger, SIGSTOP, lack of memory): a larger buffer does not help"
        if self.load is not None and self.load >= BUSY_SHARE:
            return f"share the load between two processes: listener.{self.listener}.receivers = 2"
        size = GROWTH * max(self.granted_bytes, 1 << 16)
        key = f"listener.{self.listener}.so_rcvbuf = {size}"
        if self.rmem_max and size > self.rmem_max:
            return f"allow a larger buffer, sysctl -w net.core.rmem_max={size}, and set {key}"
        return f"enlarge the receive buffer: {key}"


def receiver_load(pid: int) -> float | None:
    """Return the share of a core that a process has used since its start; None if this machine has no such process."""
    try:
        fields = (PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / ticks
        return (int(fields[11]) + int(fields[12])) / ticks / max(age_s, 1.0)
    except (OSError, ValueError, IndexError):
        return None

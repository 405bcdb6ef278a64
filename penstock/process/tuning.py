"""Memory and latency measures of processes: which process takes which, what each gains, and what each depends on.

``tune`` comes first in a process, before Arrow and grpc are imported, because both read their settings at import.
``freeze_loaded_objects`` comes when a process is ready, and ``release_freed_memory`` runs in its event loop. The
environment variable ``PENSTOCK_SKIP_TUNING`` switches measures off: their names in ``Measure``, separated by commas.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Literal

SKIP_VARIABLE = "PENSTOCK_SKIP_TUNING"
GRPC_VARIABLE = "GRPC_EXPERIMENTS"
GRPC_SERIES = "1.85."
"""The grpcio releases whose experiment ``event_engine_listener`` is known; others may not have it and log an error."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Options of mallopt(3) of glibc; other C libraries ignore them."""
RETAINED_BYTES = 8 << 20
"""Freed memory that a process keeps for its next round. With less, two thirds of the time of reading a page of entries
went into page faults.
"""
RELEASE_INTERVAL_S = 2.0
RELEASE_GROWTH_BYTES = 16 << 20
"""Growth of a log daemon between two releases."""
STATM = Path("/proc/self/statm")

Role = Literal[
    "log daemon", "receiver", "receiver of calls", "forwarder", "pipeline", "landing worker", "console", "command"
]


class Measure(StrEnum):
    """Names of the measures, for PENSTOCK_SKIP_TUNING."""

    NO_PANDAS = "no_pandas"
    SMALL_HEAP = "small_heap"
    WARM_HEAP = "warm_heap"
    GRPC_POLLING = "grpc_polling"
    FROZEN_OBJECTS = "frozen_objects"
    FREED_MEMORY = "freed_memory"


MEASURES: Mapping[Role, tuple[Measure, ...]] = {
    # Order: the environment of grpc and Arrow before anything imports them.
    "log daemon": (Measure.GRPC_POLLING, Measure.SMALL_HEAP, Measure.NO_PANDAS),
    "receiver": (Measure.WARM_HEAP, Measure.NO_PANDAS),
    "receiver of calls": (Measure.GRPC_POLLING,),
    "forwarder": (Measure.NO_PANDAS,),
    "pipeline": (Measure.WARM_HEAP,),
    "landing worker": (Measure.NO_PANDAS,),
    "console": (Measure.NO_PANDAS,),
    "command": (Measure.NO_PANDAS,),
}


def tune(role: Role) -> None:
    """Apply the measures of a role to this process."""
    for measure in MEASURES[role]:
        if is_enabled(measure):
            _APPLY[measure]()


def is_enabled(measure: Measure) -> bool:
    """Report whether PENSTOCK_SKIP_TUNING leaves a measure on."""
    return measure not in os.environ.get(SKIP_VARIABLE, "").replace(" ", "").split(",")


class _PandasBlocker(MetaPathFinder):
    """An import hook that reports pandas as not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left out on purpose", name="pandas")


def block_pandas() -> None:
    """Keep pandas out of the process.

    Benefit: 40 MB and 0.4 s. Depends on: pyarrow 26, which imports an installed pandas at the first ``pa.array`` of a
    list and continues without it.
    """
    sys.meta_path.insert(0, _PandasBlocker())


def shrink_heap() -> None:
    """Use the C library's allocator with few arenas, for a process that should stay small under any load.

    Benefit: 80 MB of anonymous memory instead of 145 in a log daemon after a load of a thousand topics. Depends on:
    glibc; pyarrow 26, whose own allocator keeps freed memory per thread.
    """
    # Before Arrow's import this sets its allocator; a process forked after the import has the allocator of its parent.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _set_malloc_options({M_ARENA_MAX: 2, M_TRIM_THRESHOLD: RETAINED_BYTES, M_MMAP_THRESHOLD: RETAINED_BYTES})


def warm_heap() -> None:
    """Keep the memory that a round or batch frees for the next round instead of faulting it in again, page by page.

    Benefit: a third of a TCP receiver's time against the C library's defaults, and a twentieth of a UDP receiver's
    against Arrow's own allocator. Depends on: glibc; pyarrow 26.
    """
    import pyarrow as pa  # here, because tune() runs before the first import of Arrow in other roles

    pa.set_memory_pool(pa.system_memory_pool())
    _set_malloc_options({M_TRIM_THRESHOLD: RETAINED_BYTES, M_MMAP_THRESHOLD: RETAINED_BYTES})


def poll_grpc_in_callers() -> None:
    """Let the threads that wait for calls read and write the sockets, as grpc did before its event engine.

    Benefit: a fifth of the time of an append by one caller, which are two hand-offs between threads; a tenth of the CPU
    of a receiver of OTLP with one caller, a quarter with 16. Depends on:
    grpcio 1.85; nothing happens with another release or when the environment sets GRPC_EXPERIMENTS.
    """
    from importlib.metadata import version  # here, because it takes 20 ms that commands do without

    if version("grpcio").startswith(GRPC_SERIES) and GRPC_VARIABLE not in os.environ:
        os.environ[GRPC_VARIABLE] = "-event_engine_listener"
        import grpc  # noqa: F401 - reads the variable once, at import

        # Removed again: Arrow Flight contains another grpc, and child processes may have another release.
        del os.environ[GRPC_VARIABLE]


_APPLY = {
    Measure.NO_PANDAS: block_pandas,
    Measure.SMALL_HEAP: shrink_heap,
    Measure.WARM_HEAP: warm_heap,
    Measure.GRPC_POLLING: poll_grpc_in_callers,
}


def _set_malloc_options(options: Mapping[int, int]) -> None:
    import ctypes  # here, for the same reason as asyncio below

    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for option, setting in options.items():
            libc.mallopt(option, setting)


def freeze_loaded_objects() -> None:
    """Exclude the objects that exist now from garbage collection; only the first call in a process has an effect.

    Benefit: no pauses of 40 ms for a hundred thousand objects, four times a second under batches of a thousand
    entries. Depends on: CPython's ``gc.freeze``.
    """
    # The pid distinguishes a forked child, which freezes what it has loaded itself, from its parent.
    _freeze(os.getpid())


@cache
def _freeze(_pid: int) -> None:
    if is_enabled(Measure.FROZEN_OBJECTS):
        gc.collect()
        gc.freeze()


class FreedMemory:
    """Memory that this process has freed and the C library still holds; returned to the system as the process grows.

    Benefit: a log daemon that took a gigabyte in batches of 512 KiB held 260 MB, of which 170 MB were free. The driver
    of a pipeline held 540 MB after 1.5 million events, all of them free. Depends on: glibc, which returns by itself
    only what lies at the end of its heap; pyarrow 26, whose ``release_unused`` trims it.
    """

    def __init__(self, growth_bytes: int) -> None:
        """``growth_bytes``: growth since the last release that is worth the milliseconds which a release takes."""
        self._growth_bytes, self._baseline = growth_bytes, 0

    def release_growth(self) -> None:
        """Release freed memory if the process has grown since the last release."""
        if not is_enabled(Measure.FREED_MEMORY):
            return
        if own_memory() > self._baseline + self._growth_bytes:
            import pyarrow as pa  # here, because tune() runs before the first import of Arrow

            pa.default_memory_pool().release_unused()
            self._baseline = own_memory()
        self._baseline = min(self._baseline, own_memory())


async def release_freed_memory() -> None:
    """Release freed memory at intervals, until cancelled."""
    import asyncio  # here, because commands that only tune themselves start faster without

    memory = FreedMemory(RELEASE_GROWTH_BYTES)
    while True:
        await asyncio.to_thread(memory.release_growth)
        await asyncio.sleep(RELEASE_INTERVAL_S)


def own_memory() -> int:
    """Return the bytes that this process shares with no file; 0 when the system does not report them."""
    try:
        resident, shared = STATM.read_text().split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * resource.getpagesize()

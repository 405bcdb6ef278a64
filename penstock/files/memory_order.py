"""Order of loads and stores in memory that processes share: a barrier where the processor does not keep the order.

x86-64 makes the stores of a core visible in program order and loads in program order, so nothing is needed there. arm64
may reorder any two accesses to different words. docs/internals/shared-words.md lists each shared word and its barriers.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

ORDERED_MACHINES = ("x86_64", "amd64")
WEAK_MACHINES = ("aarch64", "arm64")
LIBRARY, SYMBOL = "libstdc++.so.6", "_ZN9__gnu_cxx18__exchange_and_addEPVii"
"""An atomic addition with acquire and release semantics; every build of pyarrow for Linux loads the library."""


def _load_addition() -> Callable[[ctypes.c_void_p, int], int] | None:
    try:
        # The call takes nanoseconds, so it keeps the GIL.
        addition = getattr(ctypes.PyDLL(LIBRARY), SYMBOL, None)
    except OSError:
        return None
    if addition is not None:
        addition.argtypes, addition.restype = (ctypes.c_void_p, ctypes.c_int), ctypes.c_int
    return addition


def _machine() -> str:
    return os.uname().machine.lower() if hasattr(os, "uname") else ""


IS_WEAK = _machine() in WEAK_MACHINES
"""Whether the processor reorders accesses. Fast path: frequent callers test it before they call ``barrier``."""
_add = _load_addition() if IS_WEAK else None
_own_word = ctypes.c_int(0)
_own_address = ctypes.c_void_p(ctypes.addressof(_own_word))


def barrier() -> None:
    """Let every load and store before the call take effect before every load and store after it."""
    if _add is not None:
        # Order: twice. Without the atomics of Armv8.1 an addition is an exclusive load with acquire and an exclusive
        # store with release: later accesses may pass the store, and earlier ones the load. A release is never passed
        # by a later acquire, so the first store and the second load together separate all.
        _add(_own_address, 0)
        _add(_own_address, 0)


def explain_unsupported(machine: str, has_barrier: bool, word_bytes: int = ctypes.sizeof(ctypes.c_void_p)) -> str:
    """Return why processes cannot share memory on this machine, in one line; "" if they can."""
    if machine.lower() not in ORDERED_MACHINES + WEAK_MACHINES:
        return f"log buffers need an x86-64 or arm64 processor, not {machine or 'an unknown one'}"
    if word_bytes < 8 or sys.byteorder != "little":
        # A 32-bit program stores 8 bytes in two steps.
        return f"log buffers need a 64-bit little-endian Python, and this one has {8 * word_bytes} bits"
    if machine.lower() in WEAK_MACHINES and not has_barrier:
        return f"log buffers need {LIBRARY} on arm64: install the package libstdc++6 or libstdc++"
    return ""


UNSUPPORTED = explain_unsupported(_machine(), _add is not None)
"""Why this process cannot use log buffers; "" if it can."""

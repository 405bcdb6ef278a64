"""Imported first by the log daemon, before Arrow: its memory is to stay small under any load.

Arrow's own allocator keeps what it was given, thread by thread: after a load of a thousand topics the daemon held
145 MB of anonymous memory with it, 80 MB with the C library's. That one is told to share its arenas among threads
and to give large blocks back (glibc; elsewhere nothing happens).
"""

from __future__ import annotations

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Of mallopt(3)."""
OPTIONS = ((M_ARENA_MAX, 2), (M_TRIM_THRESHOLD, 1 << 20), (M_MMAP_THRESHOLD, 1 << 20))

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
_libc = ctypes.CDLL(None)
if hasattr(_libc, "mallopt"):
    for _option, _value in OPTIONS:
        _libc.mallopt(_option, _value)

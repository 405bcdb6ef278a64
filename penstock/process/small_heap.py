"""Imported by the log daemon, before Arrow where that is not loaded yet: its memory is to stay small under any load.

Arrow's own allocator keeps what it was given, thread by thread: after a load of a thousand topics the daemon held
145 MB of anonymous memory with it, 80 MB with the C library's. That one is told to share its arenas among threads
and to give back what is more than a few pages of entries (glibc; elsewhere nothing happens): with less, two thirds of
the time of reading such a page went into faulting in its memory anew.
"""

from __future__ import annotations

import os

from penstock.process.allocator import KEPT, M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, tune_allocator

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
tune_allocator({M_ARENA_MAX: 2, M_TRIM_THRESHOLD: KEPT, M_MMAP_THRESHOLD: KEPT})

"""The C library's allocator, told what to keep and what to give back."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Of mallopt(3)."""
KEPT = 8 << 20
"""Bytes of freed memory that a process keeps which uses it again."""


def tune_allocator(options: Mapping[int, int]) -> None:
    """Sets options of mallopt(3) for this process (glibc; elsewhere nothing happens)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for option, value in options.items():
            libc.mallopt(option, value)

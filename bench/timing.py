"""How long something takes."""

from __future__ import annotations

import time
from collections.abc import Callable


def fastest(what: Callable[[], object], repeats: int) -> float:
    """Seconds, the least of so many times."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        what()
        taken.append(time.perf_counter() - began)
    return min(taken)

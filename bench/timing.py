"""How long something takes, and how much of the processor."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


def fastest(what: Callable[[], object], repeats: int) -> float:
    """Seconds, the least of so many times."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        what()
        taken.append(time.perf_counter() - began)
    return min(taken)


@dataclass
class Spent:
    """Seconds on the clock, and how many cores this process used meanwhile: where that is one, it can do no more."""

    seconds: float = 0.0
    cores: float = 0.0


@contextlib.contextmanager
def timed() -> Iterator[Spent]:
    """What is done inside is in the answer once it is done."""
    spent, began, used = Spent(), time.perf_counter(), time.process_time()
    yield spent
    spent.seconds = time.perf_counter() - began
    spent.cores = (time.process_time() - used) / spent.seconds

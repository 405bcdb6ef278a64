"""A small pool of threads that commits: a topic with waiting appends is scheduled once, whoever it has to wait for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

Work = Callable[[], bool]
"""Says whether there is more to do."""


class Committers:
    """``count`` threads that run what is scheduled, first come first served; what has more to do comes again.

    Where nobody else waits it goes on where it was: two threads that take turns hand over much more than the work.
    """

    def __init__(self, count: int) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._own = threading.local()
        self._threads = [
            threading.Thread(target=self._run, name=f"committer-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def schedule(self, work: Work) -> None:
        """Run ``work``, which must not raise, as soon as a thread is free."""
        kept: list[Work] | None = getattr(self._own, "kept", None)
        if kept is not None and not kept:
            kept.append(work)
        else:
            self.hand_over(work)

    def hand_over(self, work: Work) -> None:
        """As ``schedule``, also for what was kept."""
        self._queue.put(work)

    @contextlib.contextmanager
    def scheduling_locally(self) -> Iterator[list[Work]]:
        """What this thread schedules meanwhile is kept in the list, one at a time: it does it itself, or leaves it.

        To wake a thread that sleeps costs as much as a small commit.
        """
        self._own.kept = kept = list[Work]()
        try:
            yield kept
        finally:
            self._own.kept = None
            for work in kept:
                self.hand_over(work)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            while (more := work()) and self._queue.empty():
                pass
            if more:
                self._queue.put(work)

    def close(self) -> None:
        """Wait until everything scheduled is done, then end the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

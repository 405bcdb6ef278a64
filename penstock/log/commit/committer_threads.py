"""A small pool of threads that commits: a topic with waiting appends is scheduled once, whoever it has to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], bool]
"""Says whether there is more to do."""


class Committers:
    """``count`` threads that run what is scheduled, first come first served; what has more to do comes again.

    Where nobody else waits it goes on where it was: two threads that take turns hand over much more than the work.
    """

    def __init__(self, count: int) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"committer-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def schedule(self, work: Work) -> None:
        """Run ``work``, which must not raise, as soon as a thread is free."""
        self._queue.put(work)

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

"""A small pool of threads that commits: a topic with waiting appends is scheduled once, whoever it has to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class Committers:
    """``count`` threads that run what is scheduled, first come first served."""

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
            work()

    def close(self) -> None:
        """Wait until everything scheduled is done, then end the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

"""The pool of committer threads. A topic with waiting appends is scheduled once, and any thread commits it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from queue import SimpleQueue
from typing import Any

Work = Callable[[], bool]
"""Returns whether more work is waiting."""


class Committers:
    """``count`` threads that run scheduled work in order of arrival; unfinished work is queued again.

    Fast path: if nothing else is queued, the thread repeats its work itself. Handing it to another thread costs more
    than a small commit.
    """

    def __init__(self, count: int) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._local = threading.local()
        self._threads = [
            threading.Thread(target=self._run, name=f"committer-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def schedule(self, work: Work) -> None:
        """Run ``work``, which must not raise, as soon as a thread is free."""
        local_work: list[Work] | None = getattr(self._local, "local_work", None)
        if local_work is not None and not local_work:
            local_work.append(work)
        else:
            self.hand_over(work)

    def hand_over(self, work: Work) -> None:
        """Queue work for the committer threads, even inside ``scheduling_locally``."""
        self._queue.put(work)

    @contextlib.contextmanager
    def scheduling_locally(self) -> Iterator[list[Work]]:
        """Collect the first work this thread schedules in a list, so that the thread itself can run it.

        Waking a sleeping thread costs as much as a small commit. Work that remains in the list is queued at the end.
        """
        self._local.local_work = local_work = list[Work]()
        try:
            yield local_work
        finally:
            self._local.local_work = None
            for work in local_work:
                self.hand_over(work)

    def wait(self, futures: Collection[Future[Any]]) -> None:
        """Wait until all ``futures`` of scheduled work are resolved."""
        wait_for_all(futures)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            while (more := work()) and self._queue.empty():
                pass
            if more:
                self._queue.put(work)

    def close(self) -> None:
        """Wait until all scheduled work is done, then end the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

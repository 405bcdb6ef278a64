"""Each micro-batch is committed while the tasks of the next one run; of those that are committed there is one at most.

So Spark may have written down that a batch is done which the table does not have: where the process ends in between,
``penstock.upkeep.checkpoint_repair`` takes that back, and Spark does the batch again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from penstock.landing.journal import CommitInProgress
from penstock.landing.storage.object_errors import retry_while_away
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import PartResult


class BackgroundCommit:
    """Has a thread commit what is written. A store that is away is waited for until ``stop`` is set. ``under_way`` says
    which batch that is, also once its commit has failed.
    """

    def __init__(self, commit: BatchCommit, stop: Event, under_way: CommitInProgress) -> None:
        self._commit, self._stop, self._under_way = commit, stop, under_way
        under_way.batch = None
        self._thread = ThreadPoolExecutor(1, "commit")
        self._last: Future[None] | None = None

    def land(self, batch: int, write: Callable[[], Sequence[PartResult]]) -> None:
        """Write a batch that the table does not have, and begin to commit it once the one before is in the table.

        Raises what the commit of the batch before raised.
        """
        if self._last is None and self._commit.is_landed(batch):
            return
        parts = retry_while_away(write, self._stop)
        self.settle()
        self._under_way.batch = batch
        self._last = self._thread.submit(self._committed, batch, parts)

    def _committed(self, batch: int, parts: Sequence[PartResult]) -> None:
        retry_while_away(lambda: self._commit.land(batch, lambda: parts), self._stop)
        self._under_way.batch = None

    def settle(self) -> None:
        """Wait until what was written is in the table. Raises what its commit raised."""
        if self._last is not None:
            self._last.result()

    @property
    def is_busy(self) -> bool:
        """Whether something is being committed."""
        last = self._last
        return last is not None and not last.done()

    def failure(self) -> BaseException | None:
        """What the last commit raised, if it has ended with that."""
        last = self._last
        return last.exception() if last is not None and last.done() else None

    def close(self) -> None:
        """Wait until nothing is being committed; whatever came of it."""
        self._thread.shutdown()

"""Commits of micro-batches while the tasks of the next batch run; one commit at a time.

So Spark may have recorded a batch as done that the table does not have. If the process ends then,
``penstock.upkeep.repair.checkpoint_repair`` reverts the record, and Spark does the batch again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from penstock.handover.landing_failure import FailurePage
from penstock.landing.journal import CommitInProgress
from penstock.landing.storage.object_errors import retry_while_away, translate_full_disk
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import PartResult


class BackgroundCommit:
    """A thread that commits written batches, and retries until ``stop`` is set if the store is unreachable or full.

    ``under_way`` holds the batch, also after its commit has failed; ``failures`` collects failed attempts.
    """

    def __init__(
        self, commit: BatchCommit, stop: Event, under_way: CommitInProgress, failures: FailurePage | None = None
    ) -> None:
        self._commit, self._stop, self._under_way, self._failures = commit, stop, under_way, failures
        under_way.batch = None
        self._thread = ThreadPoolExecutor(1, "commit")
        self._last: Future[None] | None = None

    def land(self, batch: int, write: Callable[[], Sequence[PartResult]]) -> None:
        """Write a batch that the table does not have, and start its commit after the previous one has ended.

        Raises the error of the previous commit.
        """
        if self._last is None and self._commit.is_landed(batch):
            return
        parts = retry_while_away(write, self._stop, self._report)
        # Order: one commit at a time, so that the table is at most one batch behind Spark.
        self.settle()
        self._under_way.batch = batch
        self._last = self._thread.submit(self._commit_parts, batch, parts)

    def _commit_parts(self, batch: int, parts: Sequence[PartResult]) -> None:
        retry_while_away(lambda: self._commit_once(batch, parts), self._stop, self._report)
        self._under_way.batch = None
        if self._failures is not None:
            self._failures.clear()

    def _report(self, error: BaseException) -> None:
        if self._failures is not None:
            self._failures.record(error)

    def _commit_once(self, batch: int, parts: Sequence[PartResult]) -> None:
        with translate_full_disk(self._commit.folder):
            self._commit.land(batch, lambda: parts)

    def run_between(self, change: Callable[[], None]) -> None:
        """Run ``change`` when no commit runs, and wait for it; the next commit sees its effect. For any thread.

        Raises the error of ``change``, and RuntimeError after ``close``.
        """
        self._thread.submit(change).result()

    def settle(self) -> None:
        """Wait until written batches are in the table. Raises the error of the commit."""
        if self._last is not None:
            self._last.result()

    @property
    def is_busy(self) -> bool:
        """Whether a commit is running."""
        last = self._last
        # Lock: the owner's thread replaces ``_last``; other threads read it once.
        return last is not None and not last.done()

    def failure(self) -> BaseException | None:
        """Return the error with which the last commit ended; None otherwise."""
        last = self._last
        return last.exception() if last is not None and last.done() else None

    def close(self) -> None:
        """Wait until the running commit ends, also if it fails."""
        self._thread.shutdown()

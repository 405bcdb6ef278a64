"""Detects a landing that makes no progress, and ends Spark then, so that the pipeline is started again.

Spark has threads whose death ends nothing: a batch then waits forever, without an error. Invariant: work that continues
is never interrupted, so CPU time of Python workers counts as progress, and so does all that is not a Spark job.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import TracebackType

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from penstock.process.kernel import PROCESSES, descendants, stat_fields

REPORT_AFTER_S, RESTART_AFTER_S = 60.0, 300.0
"""Time without progress until it is reported, and until Spark is ended: much longer than a pause of its garbage
collection, or than a store that does not answer.
"""
REMOTE_RESTART_AFTER_S = 1800.0
"""The same while tasks run on other machines, whose work cannot be seen from here until they end."""
CHECK_INTERVAL_S = 1.0
EXIT_TIMEOUT_S = 60.0
"""Time for the pipeline to end after Spark's; then the process ends at once."""
WORKED_S = 1.0
"""CPU time of Python workers that counts as progress."""
_LOGGER = logging.getLogger(__name__)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state of a running batch: it makes progress while ``marker`` changes or Python workers use CPU time."""

    marker: Hashable
    description: str
    has_remote_tasks: bool = False


class StallWatch:
    """Watches from a thread of its own, because a call of the JVM may block the thread that is watched.

    ``jvm``: the process id of Spark's JVM. Use as a context manager around the loop that calls ``note``.
    """

    def __init__(self, jvm: int, end: Callable[[int], None] | None = None) -> None:
        self._jvm, self._end = jvm, end or end_spark
        self._state: BatchState | None = None
        self._worked_s = 0.0
        self._progress_s = time.monotonic()
        self._reported = False
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stall watch", daemon=True)

    def note(self, state: BatchState | None) -> None:
        """Take in the state of the running batch; None if no Spark job is due."""
        worked_s = 0.0 if state is None else worker_cpu_s(self._jvm)
        with self._lock:
            has_worked = worked_s - self._worked_s >= WORKED_S
            if state is None or self._state is None or state.marker != self._state.marker or has_worked:
                self._progress_s, self._worked_s = time.monotonic(), worked_s
                if self._reported:
                    _LOGGER.info("the landing makes progress again")
                self._reported = False
            self._state = state

    def check(self) -> bool:
        """Report a stall, or end Spark if it lasts; return whether Spark was ended."""
        with self._lock:
            state, stalled_s = self._state, time.monotonic() - self._progress_s
            is_new = stalled_s >= REPORT_AFTER_S and not self._reported
            self._reported = self._reported or is_new
        description = state.description if state else "Spark's Java process does not answer"
        limit_s = REMOTE_RESTART_AFTER_S if state and state.has_remote_tasks else RESTART_AFTER_S
        if stalled_s >= limit_s:
            text = "no progress for %.0f s: %s; Spark is ended, so that the pipeline starts again"
            _LOGGER.critical(text, stalled_s, description)
            self._end(self._jvm)
            return True
        if is_new:
            text = "no progress for %.0f s: %s; after %.0f s Spark is ended and the pipeline starts again"
            _LOGGER.error(text, stalled_s, description, limit_s)
        return False

    def _run(self) -> None:
        while not self._stop.wait(CHECK_INTERVAL_S):
            if self.check():
                break
        else:
            return
        if not self._stop.wait(EXIT_TIMEOUT_S):
            _LOGGER.critical("the pipeline does not end after Spark's Java process: it is ended now")
            os._exit(1)

    def __enter__(self) -> StallWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()


def batch_state(context: SparkContext, query: StreamingQuery, *, is_remote: bool) -> BatchState | None:
    """Return the state of the query's batch; None between batches."""
    status = query.status
    if not status["isTriggerActive"]:
        return None
    tracker = context.statusTracker()
    stages = []
    for job in tracker.getActiveJobsIds():
        job_info = tracker.getJobInfo(job)
        for number in job_info.stageIds if job_info else ():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                stages.append(
                    (number, stage.numActiveTasks, stage.numCompletedTasks, stage.numFailedTasks, stage.numTasks)
                )
    active, completed, total = (sum(stage[index] for stage in stages) for index in (1, 2, 4))
    description = f"{status['message']}, {active} tasks run, {completed} of {total} have ended"
    return BatchState((status["message"], *stages), description, is_remote and active > 0)


def worker_cpu_s(jvm: int) -> float:
    """Return the CPU time of the processes below Spark's JVM, which are Python workers, ended ones included."""
    total = 0
    for pid in descendants(jvm):
        try:
            fields = stat_fields(PROCESSES / str(pid))
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))  # user and system time, and those of ended children
    return total / _TICKS_PER_S


def end_spark(jvm: int) -> None:
    """Kill Spark's JVM, stopped or not; its Python workers end with it."""
    os.kill(jvm, signal.SIGKILL)

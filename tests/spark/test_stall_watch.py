"""When a landing makes no progress, and when it does."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from penstock.spark import stall_watch
from penstock.spark.stall_watch import BatchState, StallWatch, worker_cpu_s
from penstock.testing.pipe import wait_until

WAITING = BatchState(("batch 7", (1, 2, 0)), "batch 7, 2 tasks run, 0 of 2 have ended")
REMOTE = BatchState(("batch 7", (1, 2, 0)), "batch 7, 2 tasks run, 0 of 2 have ended", has_remote_tasks=True)


class Watched:
    """A watch whose clock and workers' CPU time are set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.worked_s, self.ended = 1000.0, 0.0, []
        monkeypatch.setattr(stall_watch.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(stall_watch, "worker_cpu_s", lambda jvm: self.worked_s)
        self.watch = StallWatch(42, self.ended.append)

    def after(self, seconds: float, state: BatchState | None, worked_s: float = 0.0) -> bool:
        self.now += seconds
        self.worked_s += worked_s
        self.watch.note(state)
        return self.watch.check()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_a_stalled_batch_is_reported_once_and_then_ends_spark(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.after(0, WAITING)
    with caplog.at_level(logging.INFO):
        for _ in range(29):
            assert not watched.after(10, WAITING)
        assert watched.after(10, WAITING)
    assert watched.ended == [42]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "ERROR",
            f"no progress for 60 s: {WAITING.description}; after 300 s Spark is ended and the pipeline starts again",
        ),
        (
            "CRITICAL",
            f"no progress for 300 s: {WAITING.description}; Spark is ended, so that the pipeline starts again",
        ),
    ]


def test_tasks_that_end_and_workers_that_work_are_progress(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(100):
        assert not watched.after(50, BatchState(("batch 7", number), "x"))
    for _ in range(100):
        assert not watched.after(50, WAITING, worked_s=1.5)
    assert not caplog.records


def test_workers_that_only_look_around_are_no_progress(watched: Watched) -> None:
    watched.after(0, WAITING)
    assert any(watched.after(50, WAITING, worked_s=0.01) for _ in range(6))


def test_between_batches_nothing_is_due(watched: Watched) -> None:
    watched.after(0, WAITING)
    assert not any(watched.after(50, None) for _ in range(100))
    assert not watched.after(50, WAITING)


def test_a_jvm_that_does_not_answer_stalls_without_notes(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.after(0, None)
    watched.now += 61
    assert not watched.watch.check()
    assert "Spark's Java process does not answer" in caplog.text
    watched.now += 240
    assert watched.watch.check()


def test_tasks_elsewhere_have_more_time(watched: Watched) -> None:
    watched.after(0, REMOTE)
    assert not any(watched.after(100, REMOTE) for _ in range(17))
    assert watched.after(100, REMOTE)


def test_cpu_time_is_that_of_all_processes_below() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as process:
        try:
            wait_until(lambda: worker_cpu_s(process.pid) > 0.2, 30)
        finally:
            os.killpg(process.pid, 9)
    assert worker_cpu_s(process.pid) == 0

"""Heartbeats of receivers, forwarders and the pipeline: a process that is stopped or hangs is seen by its silence.

A process publishes its heartbeat with its statistics (``state_page.STATISTICS``), in a page that it has claimed:
silence is a stop while the claim lasts, and an end without it. Times are CLOCK_MONOTONIC, which is the same for all
processes of a boot.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.handover.state_page import PIPELINE_TEXTS, STATISTICS, StatePage, is_claimed

HEARTBEAT = "heartbeat"
"""Key of the heartbeat in published statistics."""
STOPPED_AFTER_S = 3.0
"""Silence after which a process counts as stopped: processes publish every 0.5 s, also while they wait for room."""

BEAT_INTERVAL_S = 0.5


class Heartbeat:
    """The publishing side. For one thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last_beat_s = 0.0
        self._pause = (0.0, 0.0)

    def beat(self) -> dict[str, Any]:
        """Return the heartbeat to publish: the time, and start and length of the last pause that was too long."""
        now = self._monotonic()
        if self._last_beat_s and now - self._last_beat_s > STOPPED_AFTER_S:
            self._pause = (self._last_beat_s, now - self._last_beat_s)
        self._last_beat_s = now
        return {HEARTBEAT: {"pid": os.getpid(), "at_s": now, "paused_at_s": self._pause[0], "pause_s": self._pause[1]}}


@dataclass(frozen=True, slots=True)
class Pulse:
    """The reading of a heartbeat: the silence until now, and start and length of the last pause that has ended."""

    silent_s: float = 0.0
    paused_at_s: float = 0.0
    pause_s: float = 0.0
    is_running: bool = True

    @property
    def is_stopped(self) -> bool:
        """The process exists, but is silent. The supervisor reports a process that has ended."""
        return self.silent_s > STOPPED_AFTER_S and self.is_running


def take_pulse(statistics: dict[str, Any], page: Path | None = None) -> Pulse:
    """Remove the heartbeat from published statistics and return what it shows.

    ``page``: path of the page, which tells a stopped process from one that has ended; without it all count as running.
    Raises OSError.
    """
    heartbeat: Mapping[str, Any] | None = statistics.pop(HEARTBEAT, None)
    if heartbeat is None:
        return Pulse()
    # The page outlives a boot, after which the clock starts at 0 again.
    silent_s = max(time.monotonic() - heartbeat["at_s"], 0.0)
    is_running = silent_s <= STOPPED_AFTER_S or page is None or is_claimed(page)
    return Pulse(silent_s, heartbeat["paused_at_s"], heartbeat["pause_s"], is_running)


@contextmanager
def publish_heartbeat(paths: Iterable[Path]) -> Iterator[None]:
    """Publish this process's heartbeat during the block, in the first page that no other process has claimed.

    Raises OSError, also if all are claimed.

    The thread shows that the process runs; ``spark.stall_watch`` finds a landing that makes no progress.
    """
    page, heartbeat, stop = _claimed_page(paths), Heartbeat(), threading.Event()

    def beat() -> None:
        page.write(STATISTICS, heartbeat.beat())
        while not stop.wait(BEAT_INTERVAL_S):
            page.write(STATISTICS, heartbeat.beat())

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        page.write(STATISTICS, {})
        page.close()


def _claimed_page(paths: Iterable[Path]) -> StatePage:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        page = StatePage(path, PIPELINE_TEXTS, claim=True)
        if page.has_claim:
            return page
        page.close()
    raise OSError(errno.EBUSY, "too many pipelines run on one data directory")

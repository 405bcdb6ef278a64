"""The log daemon as a process whose threads take steps: committers, drains, sweeper, checkpoint keeper.

The steps call what the daemon's threads call. Threads that only wait for each other are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from typing import Any

from penstock.counts import BucketClock
from penstock.handover.drain.drain import Drain
from penstock.ledger.ledger import Ledger
from penstock.log import Limits, Log, TopicSettings
from penstock.log.commit.committer_threads import Committers, Work
from penstock.log.store import gaps
from penstock.server.api.entries import EntriesApi
from penstock.testing.simulation.machine import Machine

CHECKPOINT_INTERVAL_S = 60.0
SWEEP_INTERVAL_S = 20.0


class SteppedCommitters(Committers):
    """Committers without threads: each step runs one group of waiting appends."""

    def __init__(self) -> None:
        super().__init__(0)

    @property
    def has_work(self) -> bool:
        return not self._queue.empty()

    def run_once(self) -> None:
        """Commit one group, if one waits."""
        if self.has_work:
            work: Work | None = self._queue.get()
            if work is not None and work():
                self._queue.put(work)

    def wait(self, futures: Collection[Future[Any]]) -> None:
        while not all(future.done() for future in futures):
            if not self.has_work:
                raise RuntimeError("an append is neither answered nor waiting")
            self.run_once()


class Daemon:
    """The lives of the log daemon, each after the last. ``life`` counts them; clients notice that it changes."""

    def __init__(
        self,
        machine: Machine,
        listeners: Collection[str],
        defaults: TopicSettings,
        overrides: dict[str, TopicSettings],
    ) -> None:
        self._machine = machine
        self._listeners = list(listeners)
        self._defaults, self._overrides = defaults, overrides
        self.life = 0
        self.is_running = False

    def start(self) -> None:
        """Start, and recover what the last life left. Raises LogError, OSError."""
        clock, files = self._machine.clock, self._machine.files
        files.revive()
        files.kill()
        self.committers = SteppedCommitters()
        self.log = Log(
            self._machine.topics,
            self._defaults,
            overrides=self._overrides,
            transactions=Limits(timeout=300.0),
            clock=clock,
            fs=files,
            committers=self.committers,
            new_transaction_id=self._machine.new_id,
        )
        self.ledger = Ledger(self.log, self._machine.buffers.folder, self._listeners, clock.time, files)
        self.api = EntriesApi(self.log, clock=BucketClock(clock.time, clock.monotonic))
        self._drains = {name: self._begin_drain(name) for name in self._listeners}
        self._next_sweep = clock.monotonic() + SWEEP_INTERVAL_S
        self._next_checkpoint = clock.monotonic()
        self.is_running = True
        self.life += 1

    def _begin_drain(self, listener: str) -> Iterator[Callable[[], None]]:
        return Drain(listener, self._machine.buffers.folder, self.log, None).rounds()

    @property
    def is_idle(self) -> bool:
        """Report whether all appends are answered, and visible to readers."""
        names = self.log.names(internal=True)
        flushed = all(self.log.topic(name, internal=True).writer.flushed for name in names)
        return not self.committers.has_work and flushed

    def drain(self, listener: str) -> None:
        """Store one group of a listener's frames."""
        next(self._drains[listener])

    def commit(self) -> None:
        """Commit one group of waiting appends."""
        self.committers.run_once()

    def work_if_due(self) -> None:
        """Sweep and write a checkpoint when it is time. A failure is repeated later, as by the daemon's threads."""
        now = self._machine.clock.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_INTERVAL_S
            self.log.sweep()
        if now >= self._next_checkpoint:
            self._next_checkpoint = now + CHECKPOINT_INTERVAL_S
            self.ledger.write_checkpoint()

    def die(self) -> None:
        """End as by SIGKILL: only what is in files remains."""
        self.is_running = False
        self.life += 1
        # The kernel closes a dead process's files; generators would keep theirs until they are collected.
        self._machine.files.close()
        for drain in getattr(self, "_drains", {}).values():
            drain.close()
        self._drains = {}
        # All processes of a run share this cache: one that dies where it has the lock would keep it.
        gaps.GAP_CACHE = gaps.GapCache()

    def stop(self) -> None:
        """End as by SIGTERM."""
        self.close()
        self.die()

    def close(self) -> None:
        """Store what waits, write the last checkpoint, close the log."""
        while self.committers.has_work:
            self.committers.run_once()
        self.ledger.write_checkpoint()
        self.log.close()

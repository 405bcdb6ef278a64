"""The pipeline as a process whose threads take steps: query, commits, proof worker, maintenance.

The steps call what the pipeline's threads call, on a planner instead of Spark (``planner``).
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from pyspark.sql import SparkSession

from penstock.config import Settings
from penstock.landing.landing_lock import acquire_landing_lock
from penstock.log.errors import LogError
from penstock.proof.posts.ledger_client import LedgerAway, LedgerClient, LedgerRefused
from penstock.server.api.monitoring import MonitoringApi
from penstock.server.auth.rights import ANONYMOUS
from penstock.slogd.errors import ApiError, BadRequest, Exhausted, NoSuchTopic
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.testing.crashes import FakeClock
from penstock.testing.simulation.daemon import Daemon
from penstock.testing.simulation.landing.planner import PlannerSession
from penstock.upkeep.believed_clock import BelievedClock
from penstock.upkeep.maintenance import Maintenance, Upkeep
from penstock.upkeep.repair.checkpoint_repair import repair_checkpoint, sweep

MAX_WAITS = 4
"""Waits for space after which the pipeline is stopped."""


class DirectLedger(LedgerClient):
    """The pipeline's client, which calls the daemon's monitoring instead of its address.

    ``lost_answers``: posts that are entered without an answer.
    """

    def __init__(self, daemon: Daemon, settings: Settings) -> None:
        super().__init__("127.0.0.1:1", verify=False)
        self._daemon, self._settings = daemon, settings
        self.lost_answers = 0

    def _request(self, method: str, path: str, **request: Any) -> Any:
        if not self._daemon.is_running:
            raise LedgerAway(f"{method} {path}: the daemon is away")
        api = MonitoringApi(self._settings, self._daemon.log, self._daemon.ledger)
        try:
            answer = self._answer(api, method, path, **request)
        except (BadRequest, NoSuchTopic) as error:
            raise LedgerRefused(f"{method} {path}: {error}") from None
        except (Exhausted, ApiError, LogError, OSError) as error:
            raise LedgerAway(f"{method} {path}: {error}") from None
        if self.lost_answers:
            self.lost_answers -= 1
            raise LedgerAway(f"{method} {path}: no answer")
        return answer

    def _answer(
        self,
        api: MonitoringApi,
        method: str,
        path: str,
        json: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        if method == "POST" and path == "/ledger":
            return api.post(json)
        if method == "POST":
            assert params is not None
            return api.verify(path.split("/")[2], params["begin"], params["end"], ANONYMOUS)
        return {"/ledger": lambda: api.counts_of_tier("landed"), "/clock": api.clock, "/watermarks": api.watermarks}[
            path
        ]()


class VirtualStop(threading.Event):
    """The event that ends the pipeline's waits for space; time passes in them, and the disk has space again."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock, self._waits = clock, 0

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.advance(timeout or 0.0)
        self._waits += 1
        if self._waits > MAX_WAITS:
            self.set()
        return self.is_set()


class Pipeline:
    """The lives of the pipeline, each after the last."""

    def __init__(
        self,
        landing: Landing,
        upkeep: Upkeep,
        clock: FakeClock,
        session: Callable[[], PlannerSession],
        ledger: LedgerClient,
    ) -> None:
        self._landing, self._upkeep, self._clock, self._new_session = landing, upkeep, clock, session
        self._ledger = ledger
        self._lock: int | None = None
        self.is_running = False

    def start(self) -> str:
        """Start as ``spark.pipeline.run`` does."""
        landing, layout = self._landing, self._landing.layout
        self._lock = acquire_landing_lock(layout, threading.Event(), patience=0)
        clock = BelievedClock(layout, self._ledger, self._clock)
        # Order: as in ``spark.pipeline``.
        repair_checkpoint(layout)
        self.worker = ProofWorker(landing, self._ledger, clock)
        self.worker.enter()
        sweep(layout)
        layout.hold.unlink(missing_ok=True)
        shutil.rmtree(layout.scratch, ignore_errors=True)
        layout.scratch.mkdir()
        self.maintenance = Maintenance(
            layout, self._upkeep, clock, lambda: self.worker.all_proved, landing.topics, None, landing.row_sources()
        )
        self._session = self._new_session()
        self._running = start_landing(
            cast(SparkSession, self._session),
            landing,
            stop=VirtualStop(self._clock),
            under_way=self.worker.under_way,
            latest_time=clock.expected_micros,
        )
        self.is_running = True
        return "started"

    def threads(self) -> dict[str, Callable[[], str]]:
        """Return the step of each thread."""
        return {"query": self.trigger, "commit": self.commit, "proof": self.prove, "maintenance": self.maintain}

    def trigger(self) -> str:
        """Run a batch if there is input."""
        assert self._session.query is not None
        return self._session.query.step()

    def commit(self) -> str:
        """Commit a written batch, as the thread of commits does while the next batch runs."""
        self._session.commits.step()
        return ""

    def prove(self) -> str:
        """Prove and post what is committed."""
        return "proved" if self.worker.step() else ""

    def maintain(self) -> str:
        """Run the due tasks of the maintenance."""
        self.maintenance.step()
        return ""

    @property
    def failure(self) -> BaseException | None:
        """Why the query has ended; None while it runs."""
        return None if self._running.is_running else self._running.failure() or RuntimeError("the query has ended")

    @property
    def is_settled(self) -> bool:
        """Report whether all that is committed is proved and posted."""
        return not self._running.is_committing and self.worker.all_proved and not self.worker.progress.away

    def stop(self) -> str:
        """End as by SIGTERM."""
        self._landing.layout.hold.touch()
        self._running.stop()
        self.worker.stop(0)
        self.die()
        return "stopped"

    def die(self) -> None:
        """End as by SIGKILL."""
        self.is_running = False
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        for name in ("worker", "maintenance", "_session", "_running"):
            self.__dict__.pop(name, None)

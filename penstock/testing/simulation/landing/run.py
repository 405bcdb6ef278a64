"""A run of the landing: a seed draws messages, steps of the pipeline, work of other programs, and faults.

Start at ``simulate_landing``. The log and the ledger are as in the other simulation, without its faults of the disk.
The tables are on a real folder, where Arrow and delta-rs write by themselves.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.config import Settings
from penstock.landing.requests.deletions import pending_deletions
from penstock.landing.table.landed_table import has_landed_table, table_of
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable
from penstock.ledger.book.book_from_topics import TOPIC as LEDGER_TOPIC
from penstock.log import Gap, TopicReader
from penstock.proof.commit_notes import awaits_deletion
from penstock.spark.query.landing_query import Landing
from penstock.testing.simulation.daemon import Daemon
from penstock.testing.simulation.landing.faults import LandingKind, draw_landing_faults
from penstock.testing.simulation.landing.pipeline import DirectLedger, Pipeline
from penstock.testing.simulation.landing.planner import PlannerSession, SteppedCommits
from penstock.testing.simulation.landing.programs import (
    CHANGING,
    DEFAULTS,
    KEEPING,
    OVERRIDES,
    TOPICS,
    Sender,
    change_table,
    request_some,
)
from penstock.testing.simulation.landing.promises import (
    LandedPromises,
    check_books,
    check_sql,
    check_typed,
    read_table,
)
from penstock.testing.simulation.landing.replacements import virtual_landing
from penstock.testing.simulation.landing.tables_disk import TablesDisk
from penstock.testing.simulation.machine import Killed, Machine, interrupted_after, killed_after
from penstock.testing.simulation.outcome import Outcome, run_folder
from penstock.testing.simulation.promises import Broken
from penstock.upkeep.maintenance import RETENTION_INTERVAL_S, Upkeep

LANDING_STEPS, LANDING_MESSAGES = 120, 150
START_S = 1_780_000_000.0
"""A plausible time."""
KILLABLE_ROOMS = ("files", "landing", "proof", "spark", "upkeep", "testing/simulation/landing/planner.py")
SHARED_FILES = ("landing/table/", "landing/journal", "landing/requests/", "landing/landing_lock", "proof/proofs")
"""Modules by which the threads read and write what they share."""
OTHER_THREADS = {
    "query": ("commit", "proof", "maintenance"),
    "commit": ("proof", "maintenance"),
    "proof": ("query", "commit", "maintenance"),
    "maintenance": ("query", "commit", "proof"),
}
"""Threads that take a step within a step of another one. A query waits for commits, so none runs within a commit."""
MAX_INTERLEAVED = 4
MAX_QUIET_ROUNDS = 60
QUIET_SHARE = 0.01
WINDOW_S = 60.0
TYPED = TypedTable("orders", "order", (Column("n", "bigint", "n"),))
RETAINED_TYPE, RETENTION_S = "click", 2 * 86_400.0


def simulate_landing(
    seed: int,
    *,
    steps: int = LANDING_STEPS,
    messages: int = LANDING_MESSAGES,
    faults: Iterable[int] | None = None,
) -> Outcome:
    """Run a seed and return its outcome; ``faults`` selects faults by number."""
    with run_folder() as folder:
        run = _LandingRun(seed, folder, steps, messages, faults)
        with run.running():
            run.execute()
        return run.outcome


class _LandingRun:
    def __init__(self, seed: int, folder: Path, steps: int, messages: int, faults: Iterable[int] | None) -> None:
        self._faults = draw_landing_faults(seed, steps, faults)
        self.outcome = Outcome(seed, faults=self._faults)
        self._steps, self._step = steps, 0
        self._dice = random.Random(f"{seed} schedule")
        self._names = random.Random(f"{seed} names")
        self.machine = machine = Machine(folder, seed)
        machine.clock.now = START_S
        self._disk = TablesDisk(folder / "tables")
        self._daemon = Daemon(machine, [], DEFAULTS, OVERRIDES)
        self._sender = Sender(machine, self._daemon, random.Random(f"{seed} content"), messages)
        self._promises = LandedPromises(round(WINDOW_S * 1e6), retained_type=RETAINED_TYPE)
        self._landing = Landing(
            machine.topics,
            folder / "tables",
            typed=(TYPED,),
            duplicate_window=WINDOW_S,
            max_rows=self._dice.choice([10, 30, 1000]),
        )
        self._layout = self._landing.layout
        settings = Settings(data_dir=folder)
        self._ledger = DirectLedger(self._daemon, settings)
        merge_every = self._dice.choice([0.0, 5.0, 20.0])
        upkeep = Upkeep(merge_every, self._landing.window, {f"event/{RETAINED_TYPE}": RETENTION_S}, (TYPED,))
        self._pipeline = Pipeline(self._landing, upkeep, machine.clock, self._new_session, self._ledger)
        self._disk.interrupt = partial(self._work_of_others, KEEPING)
        self._session: PlannerSession | None = None
        # Draws of their own: recorded runs keep their numbers.
        self._retained = random.Random(f"{seed} spark").choice([3, 100])
        self._interleaving = random.Random(f"{seed} threads")
        self._kill_at = self._kill_task_at = self._interleave_at = -1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Replace what a run must not take from outside."""
        with virtual_landing(self.machine, self._names, self._new_pool), self._disk.running():
            yield

    def _new_pool(self, threads: int, name: str) -> SteppedCommits:
        assert self._session is not None
        self._session.commits = SteppedCommits()
        return self._session.commits

    def _new_session(self) -> PlannerSession:
        self._session = PlannerSession(self.machine.clock, self._attempt, self._retained)
        return self._session

    def _attempt(self, run: Callable[[], pa.Table]) -> pa.Table | None:
        """Run an attempt of a task, whose worker may die."""
        lines, self._kill_task_at = self._kill_task_at, -1
        if lines < 0:
            if self._dice.random() < 0.05:
                run()  # a speculative attempt, whose result is not used
                self._record("task", "ran twice")
            return run()
        try:
            with killed_after(lines, self._end_process, KILLABLE_ROOMS):
                run()
        except Killed:
            pass
        self._disk.is_dead = False
        self._record("task", "killed")
        return None

    def _record(self, process: str, text: str) -> None:
        self.outcome.record(self._step, self.machine, process, text)

    def _end_process(self) -> None:
        self._disk.is_dead = True

    def execute(self) -> None:
        """Run all steps and the checks."""
        try:
            with self.outcome.ending():
                self._daemon.start()
                for step in range(self._steps):
                    self._step = step
                    self._inject_faults()
                    self._take_step()
                    if self._dice.random() < QUIET_SHARE:
                        self._come_to_rest()
                self._come_to_rest()
        finally:
            self._pipeline.die()
            self._daemon.die()
        self._record("end", self.outcome.broken or "everything is kept")

    def _inject_faults(self) -> None:
        while self._faults and self._faults[0].step <= self._step:
            fault = self._faults[0]
            self._faults = self._faults[1:]
            self._record("fault", str(fault))
            match fault.kind:
                case LandingKind.KILL_PIPELINE:
                    self._kill_at = fault.amount
                case LandingKind.KILL_TASK:
                    self._kill_task_at = fault.amount
                case LandingKind.KILL_DAEMON:
                    self._daemon.die()
                case LandingKind.STOP_PIPELINE:
                    self._stop_pipeline()
                case LandingKind.FULL_DISK:
                    self._disk.full_for = fault.amount
                case LandingKind.LOST_COMMIT:
                    self._disk.lost_commits = fault.amount
                case LandingKind.LOST_ANSWER:
                    self._disk.lost_answers = fault.amount
                case LandingKind.OTHER_WRITER:
                    self._disk.interrupted = fault.amount
                case LandingKind.LOST_POST:
                    self._ledger.lost_answers = fault.amount
                case LandingKind.LOST_LEDGER:
                    self._daemon.die()
                    shutil.rmtree(self.machine.topics / LEDGER_TOPIC, ignore_errors=True)
                case LandingKind.CLOCK_JUMP:
                    self.machine.clock.jump(fault.amount)
                    self._promises.has_jumped = True
                case LandingKind.PAUSE:
                    self.machine.clock.advance(fault.amount)
                case LandingKind.INTERLEAVE:
                    self._interleave_at = fault.amount

    def _stop_pipeline(self) -> None:
        if self._pipeline.is_running:
            self._of_pipeline("stop", self._pipeline.stop)

    def _take_step(self) -> None:
        self.machine.clock.advance(self._dice.choice([0.01, 0.1, 1.0, 5.0]))
        if not self._daemon.is_running and self._dice.random() < 0.3:
            self._daemon.start()
        if not self._pipeline.is_running and self._dice.random() < 0.3:
            self._of_pipeline("start", self._pipeline.start)
            return
        step = self._dice.choices(
            [self._append, self._step_of_pipeline, self._work_of_daemon, self._request_deletion, self._work_of_others],
            [8, 20, 2, 1, 1],
        )[0]
        step()

    def _append(self) -> None:
        text = self._sender.step()
        if text:
            self._observe()
            self._record("sender", text)

    def _observe(self) -> None:
        for topic in TOPICS:
            self._promises.observe(self.machine.topics, topic)

    def _step_of_pipeline(self) -> None:
        pipeline = self._pipeline
        if not pipeline.is_running:
            return
        name, step = self._dice.choices(list(pipeline.threads().items()), [6, 5, 5, 3])[0]
        self._of_pipeline(name, step)

    def _of_pipeline(self, name: str, step: Callable[[], str]) -> None:
        """Take a step of the pipeline, which may die in it; end it if its query has failed."""
        try:
            text = self._step_of_thread(name, step)
        except Killed:
            self._pipeline.die()
            self._disk.is_dead = False
            self._record(name, "the pipeline is killed")
            return
        except Exception as error:  # noqa: BLE001 - the threads log it and go on
            text = f"error: {type(error).__name__}"
            if name in ("start", "stop"):
                self._pipeline.die()
        if text:
            self._record(name, text)
        if self._pipeline.is_running and self._pipeline.failure is not None:
            self._record("pipeline", f"ended by {type(self._pipeline.failure).__name__}")
            self._stop_pipeline()

    def _step_of_thread(self, name: str, step: Callable[[], str]) -> str:
        """Take a step of a thread, in which another one may take its own; return its text. Raises Killed."""
        if self._interleave_at >= 0 and name in OTHER_THREADS:
            calls, self._interleave_at = self._interleave_at, -1
            with interrupted_after(calls, partial(self._interleave, name), SHARED_FILES):
                return step()
        lines, self._kill_at = self._kill_at, -1
        if lines < 0:
            return step()
        with killed_after(lines, self._end_process, KILLABLE_ROOMS):
            step()
        raise Killed

    def _interleave(self, name: str) -> None:
        """Let other threads take steps within a step of the thread ``name``. Raises Killed."""
        for other in self._interleaving.choices(OTHER_THREADS[name], k=self._interleaving.randint(1, MAX_INTERLEAVED)):
            try:
                text = self._step_of_thread(other, self._pipeline.threads()[other])
            except Exception as error:  # noqa: BLE001 - the threads log it and go on
                text = f"error: {type(error).__name__}"
            self._record(other, f"within {name}: {text or 'nothing'}")

    def _work_of_daemon(self) -> None:
        if self._daemon.is_running:
            self._daemon.work_if_due()

    def _request_deletion(self) -> None:
        if has_landed_table(self._layout) and self._sender.uuids:
            table = self._look()
            with self._disk.another_process():
                text = request_some(self._layout, self._dice, self._sender, self._promises, table)
            self._record("user", text)

    def _work_of_others(self, kinds: Sequence[str] = CHANGING) -> None:
        if has_landed_table(self._layout) and self._sender.uuids and (before := self._look()):
            with self._disk.another_process():
                text = change_table(self._layout, self._dice, self._sender, kinds)
                after = read_table(self._layout)
            self._promises.see_foreign_change(before, after, table_of(self._layout).last_deletion())
            self._record("another program", text)

    def _look(self) -> dict[tuple[str, int], Any]:
        self._observe()
        return self._promises.see_table(self._layout)

    def _come_to_rest(self) -> None:
        """Stop the faults, let everything land, and check it. Raises Broken."""
        disk = self._disk
        disk.full_for = disk.lost_commits = disk.lost_answers = disk.interrupted = self._ledger.lost_answers = 0
        self._kill_at = self._kill_task_at = self._interleave_at = -1
        quiet_rounds = 0
        for _ in range(MAX_QUIET_ROUNDS):
            # The maintenance of a round may delete rows, which the next round posts.
            quiet_rounds = quiet_rounds + 1 if self._take_round() else 0
            if quiet_rounds == 2:
                break
        else:
            raise Broken(f"no rest after {MAX_QUIET_ROUNDS} rounds without faults")
        # Order: a stop writes the proofs for SQL.
        self._stop_pipeline()
        self._check()
        self._record("check", "everything is kept so far")

    def _take_round(self) -> bool:
        """Let each process take its steps; report whether nothing is left to do."""
        # Rows that came back, and could not be deleted again, are at the next look at retention.
        self.machine.clock.advance(RETENTION_INTERVAL_S if awaits_deletion(self._layout) else 3.0)
        pipeline = self._pipeline
        if not self._daemon.is_running:
            self._daemon.start()
        self._daemon.work_if_due()
        if not pipeline.is_running:
            self._of_pipeline("start", pipeline.start)
        texts: list[str] = []
        for name, step in pipeline.threads().items():
            if not pipeline.is_running:
                return False
            self._of_pipeline(name, partial(_noting, step, texts))
        if not pipeline.is_running or texts[0] or not pipeline.is_settled:
            return False
        ends = {topic: landed.through for topic, landed in self._daemon.ledger.landed().items()}
        self._observe()
        if awaits_deletion(self._layout) or pending_deletions(self._layout):
            return False
        return ends == {t: end for t, end in self._promises.ends.items() if end}

    def _check(self) -> None:
        table = self._look()
        executed = table_of(self._layout).last_deletion() if table else 0
        self._promises.check_deleted(table, executed)
        gaps: dict[str, list[Gap]] = {
            topic: TopicReader(self.machine.topics / topic).gaps() for topic in self._daemon.log.names()
        }
        fates = self._promises.check_fates(table, gaps)
        # Rows that another program deleted and brought back have no fate, and are named until they are gone.
        has_strays = any(counts["brought"] for counts in fates.values())
        check_books(self.machine, self._daemon, self._layout, fates, WINDOW_S, rebuilds=not has_strays)
        if table:
            # Rows that other programs delete from ``landed`` stay in typed tables.
            check_typed(self._layout, TYPED.name, TYPED.type, table, self._promises.foreign | self._promises.brought)
        if not has_strays:
            check_sql(self._layout)


def _noting(step: Callable[[], str], texts: list[str]) -> str:
    texts.append(step())
    return texts[-1]

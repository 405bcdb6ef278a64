"""After each committed batch: enter it in the journal, prove it, write the proof down, post it to the ledger.

What is long done is rolled up (``penstock.proof.rollup``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.files.checked_lines import read_lines, read_lines_from
from penstock.landing.history import read_sum
from penstock.landing.journal import REFILL_MARK, Commit, CommitInProgress, Journal, latest
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.requests.deletions import newest_request as newest_deletion
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.process.process_end import stop_thread
from penstock.proof.kafka_records import group_offsets, kafka_records
from penstock.proof.ledger_posts import LedgerAway, LedgerRefused
from penstock.proof.proofs import BackfillProof, Proof, ProvedBatch, latest_proofs, rolled_proofs, write_proofs
from penstock.proof.prover import Prover
from penstock.proof.reread_flight import log_records
from penstock.proof.rollup import KEEP, ROLL_AT, roll_up
from penstock.proof.watermarks import keep_watermarks
from penstock.spark.query.landing_query import Landing
from penstock.upkeep.believed_clock import BelievedClock

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds between tries while the daemon is away; each pause is twice the one before."""
INTERVAL = 0.2
"""Seconds between looks for a new commit: one listing of a folder."""
PUBLISH_EVERY = 5.0
"""Seconds between looks at the watermarks."""
_LOGGER = logging.getLogger(__name__)


class LedgerPosts(Protocol):
    """What the proof worker needs of the ledger; all may raise LedgerAway, those that post or verify LedgerRefused."""

    def through(self) -> dict[str, int]: ...

    def post(self, proof: Proof, end: int = 0) -> None: ...

    def post_refill(self, refill: BackfillProof) -> None: ...

    def verify(self, topic: str, begin: int, end: int) -> None: ...

    def deletions(self) -> dict[str, int]: ...

    def tell(self, document: Mapping[str, Any]) -> None: ...

    def watermarks(self) -> list[dict[str, Any]]: ...

    def clock(self) -> Mapping[str, Any]: ...


@dataclass(slots=True)
class Progress:
    """How far the proof worker is, since it was started (``batch``: the last one proved, -1 for none)."""

    batch: int = -1
    with_posts: int = -1
    rows: int = 0
    duplicates: int = 0
    quarantined: int = 0
    unaccounted: int = 0
    away: str = ""


class ProofWorker:
    """Proves and posts; ``step`` does what there is to do. One process at a time: hold the landing's lock. What is
    ``under_way`` is left alone.

    Proving needs no daemon; while it is away proofs are written down and posted later. Only a corrupt batch
    has to wait for it, because it must be a gap before it can be counted.
    """

    def __init__(self, landing: Landing, ledger: LedgerPosts | None, clock: BelievedClock | None = None) -> None:
        self._layout: Layout = landing.layout
        self._ledger = ledger
        self._clock = clock or BelievedClock(landing.layout, ledger)
        self.progress = Progress()
        self.under_way = CommitInProgress()
        self._journal = Journal(self._layout, self.under_way)
        self._kafka = kafka_records(landing.kafka, landing.expiry_gap, landing.event_types)
        self._prover = Prover(
            landing.topics,
            self._layout,
            window=landing.duplicate_window,
            event_types=landing.event_types,
            verify=self._verify if ledger else None,
            kafka=self._kafka,
            log=log_records(landing.log, landing.event_types),
        )
        self._group = group_offsets(landing.kafka, landing.kafka_group)
        self._ends: dict[str, int] = {}
        self._unproved = self._resume()
        self._through: dict[str, int] | None = None
        self._position = self._deletion = 0
        self._pause = FIRST_PAUSE
        self._next_try = self._next_publication = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proof worker", daemon=True)

    def _resume(self) -> list[Commit]:
        """The batches in the journal that are not proved yet; the proved ones are remembered as evidence."""
        rolled, commits = latest(self._layout)
        self.progress.batch = rolled.batch
        self._ends.update(rolled.end)
        for batch in read_lines(self._layout.proofs, lambda line: int(line["batch"]), repair=True):
            self.progress.batch = max(self.progress.batch, batch)
        unproved = []
        for commit in commits:
            if commit.batch <= self.progress.batch:
                self._prover.remember(commit)
                self._ends.update(commit.end)
            else:
                unproved.append(commit)
        return unproved

    def start(self) -> None:
        """Go on in a thread of its own until ``stop``."""
        self._thread.start()

    def stop(self, patience: float) -> bool:
        """Do what is left to do, at most ``patience`` seconds long; whether everything is proved and posted."""
        ended = self.break_off(patience)
        self._next_try = 0.0
        is_done = ended and self._step_safely()
        if is_done and self._group is not None:
            self._group.flush(self._ends)
        return is_done

    def break_off(self, patience: float) -> bool:
        """Leave undone what is not begun; whether the thread has ended, which is waited for so many seconds, once."""
        return stop_thread(self._thread, self._stop, patience)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._step_safely()
            self._stop.wait(INTERVAL)

    def _step_safely(self) -> bool:
        try:
            return self.step()
        except Exception as error:  # noqa: BLE001 - such as a full disk: reported, and tried again
            self._wait(f"{type(error).__name__}: {error}")
            return False

    def enter(self) -> None:
        """Enter new commits in the journal. Raises OSError or ValueError."""
        self._unproved += self._journal.update()

    def step(self) -> bool:
        """Take in new commits, prove and post what can be; whether nothing is left."""
        self.enter()  # also while proofs wait, because Spark forgets
        if time.monotonic() < self._next_try:
            return False
        try:
            self._prove()
            self._post()
            if self._group is not None:
                self._group.report(self._ends)
            self._post_deletions()
            self._publish()
            self._roll_up()
        except LedgerAway as error:
            self._wait(str(error))
            return False
        if self.progress.away:
            _LOGGER.info("proofs go on")
        self.progress.away, self._pause = "", FIRST_PAUSE
        return True

    def _wait(self, why: str) -> None:
        if why != self.progress.away:
            _LOGGER.warning("proofs wait: %s", why)
        self.progress.away = why
        self._next_try = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        self._through = None

    def _prove(self) -> None:
        while self._unproved:
            commit = self._unproved[0]
            proofs = self._prover.prove(commit)
            refills = self._prover.refills(commit)
            write_proofs(self._layout, commit.batch, proofs, refills)
            self._count(commit, [*proofs, *(refill.proof for refill in refills)])
            del self._unproved[0]

    def _verify(self, topic: str, begin: int, end: int) -> None:
        assert self._ledger is not None
        try:
            self._ledger.verify(topic, begin, end)
        except LedgerRefused as error:
            text = "offsets %d to %d of topic %s are corrupt, and the daemon does not enter it: %s"
            _LOGGER.error(text, begin, end, topic, error)

    def _count(self, commit: Commit, proofs: list[Proof]) -> None:
        progress = self.progress
        progress.batch = commit.batch
        self._ends.update(commit.end)
        for proof in proofs:
            progress.rows += proof.total() + len(proof.unaccounted)
            progress.duplicates += proof.total("duplicate")
            progress.quarantined += proof.total("quarantined.")
            progress.unaccounted += len(proof.unaccounted)
            if not proof.holds:
                _LOGGER.error("%s", _alarm(proof))

    def _post(self) -> None:
        """Post the written proofs that the ledger has not, in order."""
        if self._ledger is None:
            return
        if self._through is None:  # it may have come back with another memory: ask what it has
            self._through, self._position, self._deletion = self._ledger.through(), 0, 0
            if self._lacks_old_ones(self._through):
                for old in rolled_proofs(self._layout):
                    self._post_batch(self._ledger, self._through, old)
        for position, proved in read_lines_from(self._layout.proofs, ProvedBatch.of, self._position):
            self._post_batch(self._ledger, self._through, proved)
            self._position = position

    def _lacks_old_ones(self, through: dict[str, int]) -> bool:
        """Whether the ledger does not have all that was rolled up, as when it was lost."""
        known = read_sum(self._layout).end
        return any(end > through.get(topic, 0) for topic, end in known.items() if REFILL_MARK not in topic)

    def _post_batch(self, ledger: LedgerPosts, through: dict[str, int], proved: ProvedBatch) -> None:
        for proof in proved.proofs:
            if proof.end > through.get(proof.topic, 0):
                self._post_one(ledger, proof)
                through[proof.topic] = proof.end
        for refill in proved.refills:
            self._post_refill(ledger, refill)

    @property
    def settled(self) -> bool:
        """Whether all that is in the table is proved: then rows may be taken out of it."""
        return not self._unproved and self.progress.batch >= table_of(self._layout).newest()

    def _post_deletions(self) -> None:
        """Tell the ledger what was taken out of the table, once it has been told that it had landed."""
        newest = newest_deletion(self._layout)
        if self._ledger is None or newest <= self._deletion:
            return
        record, known = DeletionRecord(self._layout), self._ledger.deletions()
        for batch, one in record.deleted(self._deletion):
            if batch > self.progress.batch:
                return
            if one.number > known.get(one.topic, 0):
                try:
                    self._ledger.tell(one.document(batch))
                except LedgerRefused as error:
                    _LOGGER.error("the ledger refused deletion %d of topic %s: %s", one.number, one.topic, error)
        self._deletion = max((one.number for one in record.deletions), default=0)

    def _roll_up(self) -> None:
        """Take old lines out of journal and proofs, now that all of them are posted."""
        if self._journal.lines >= ROLL_AT:
            rolled, since = latest_proofs(self._layout)
            through = since[-KEEP - 1].batch if len(since) > KEEP else rolled.batch
            roll_up(self._layout, through, self._clock.now)
            self._journal.lines, self._position = min(len(since), KEEP), 0

    def _publish(self) -> None:
        """Keep how far the tables are complete where SQL finds it, now and then."""
        if self._ledger is not None and time.monotonic() >= self._next_publication:
            keep_watermarks(self._layout, self._ledger.watermarks())
            self._next_publication = time.monotonic() + PUBLISH_EVERY

    def _post_one(self, ledger: LedgerPosts, proof: Proof) -> None:
        try:
            ledger.post(proof, self._kafka.end(proof.topic) if self._kafka else 0)
        except LedgerRefused as error:  # such as a topic that was deleted: the proof stays written down
            _LOGGER.error("the ledger refused batch %d of topic %s: %s", proof.batch, proof.topic, error)
        self.progress.with_posts = proof.batch

    def _post_refill(self, ledger: LedgerPosts, refill: BackfillProof) -> None:
        """The ledger knows by request and batch whether it has it."""
        try:
            ledger.post_refill(refill)
        except LedgerRefused as error:
            batch = refill.proof.batch
            _LOGGER.error("the ledger refused what landed out of turn in batch %d: %s", batch, error)


def _alarm(proof: Proof) -> str:
    parts = [f"batch {proof.batch}, topic {proof.topic}, offsets {proof.begin} to {proof.end}:"]
    for name, offsets in (("unaccounted", proof.unaccounted), ("not of this batch, or twice", proof.unexpected)):
        if offsets:
            shown = ", ".join(map(str, offsets[:10])) + (", ..." if len(offsets) > 10 else "")
            parts.append(f"{len(offsets)} {name} ({shown})")
    return " ".join(parts)

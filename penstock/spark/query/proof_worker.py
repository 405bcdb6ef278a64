"""The proof worker: enters each committed batch in the journal, proves it, stores the proof, and posts it to the
ledger.

Order: journal, proof, post, cursor. Each step is repeated after a crash until the next one is stored. Old batches are
rolled up (``penstock.proof.rollup``). Start with ``ProofWorker.step``.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.files.checked_document import write_document
from penstock.files.checked_lines import read_lines, read_lines_from
from penstock.landing.history import read_sum
from penstock.landing.journal import BACKFILL_MARK, Commit, CommitInProgress, Journal, latest, violations_by_rule
from penstock.landing.requests.deletions import DeletionRecord
from penstock.landing.requests.deletions import newest_request as newest_deletion
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.ledger.posts import EventPost
from penstock.process.process_end import stop_thread
from penstock.proof.commit_notes import TYPED_COMPLAINTS, Complaint, noted_complaints
from penstock.proof.kafka_records import ends_posts, group_offsets, kafka_records
from penstock.proof.posts.ledger_client import LedgerAway, LedgerRefused
from penstock.proof.proofs import BackfillProof, Proof, ProvedBatch, latest_proofs, rolled_proofs, write_proofs
from penstock.proof.proofs_table import ProofAppender
from penstock.proof.prover import Prover
from penstock.proof.reread.flight import log_records
from penstock.proof.rollup import KEEP, ROLL_AT, roll_up
from penstock.proof.watermarks import keep_watermarks
from penstock.spark.query.landing_query import Landing
from penstock.upkeep.believed_clock import BelievedClock

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
"""Backoff while the daemon is unavailable; each pause doubles."""
POLL_INTERVAL_S = 0.2
"""Interval between checks for new commits; each lists a folder."""
PUBLISH_INTERVAL_S = 5.0
"""Interval between updates of the watermarks."""
MAX_EVENT_TEXT = 500
"""Limit for the characters of an event: the ledger refuses longer texts."""
_LOGGER = logging.getLogger(__name__)


class LedgerPosts(Protocol):
    """The ledger's interface for proofs. All methods may raise LedgerAway, ``post``, ``post_backfill``, ``verify``
    and ``post_document`` LedgerRefused.
    """

    def through(self) -> dict[str, int]: ...

    def post(self, proof: Proof, end: int = 0, after: int = 0) -> None: ...

    def post_backfill(self, backfill: BackfillProof) -> None: ...

    def verify(self, topic: str, begin: int, end: int) -> None: ...

    def deletions(self) -> dict[str, int]: ...

    def post_document(self, document: Mapping[str, Any]) -> bool: ...

    def watermarks(self) -> list[dict[str, Any]]: ...

    def clock(self) -> Mapping[str, Any]: ...


@dataclass(slots=True)
class Progress:
    """Progress of the proof worker since its start; ``batch`` is the last proved one, -1 for none."""

    batch: int = -1
    with_posts: int = -1
    rows: int = 0
    duplicates: int = 0
    quarantined: int = 0
    unaccounted: int = 0
    away: str = ""


class ProofWorker:
    """The worker that proves and posts committed batches; ``under_way`` names a commit that it must not enter yet.

    Lock: one process at a time, the holder of the landing lock. ``step`` runs in the worker's thread, or in the
    caller's after ``break_off``. Proving needs no daemon: proofs are stored and posted later. Only a corrupt batch
    waits for the daemon, which has to record it as a gap before it can be counted.
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
            summed=True,
        )
        self._proof_table = ProofAppender(self._layout)
        self._group = group_offsets(landing.kafka, landing.kafka_group)
        self._ends_posts = ends_posts(landing.kafka, landing.topic.split(","), self._layout)
        self._ends: dict[str, int] = {}
        self._unproved = self._resume()
        self._violations = violations_by_rule(self._layout)
        self._has_new_violations = bool(self._violations)
        self._has_warned = False
        self._through: dict[str, int] | None = None
        self._posted: dict[str, int] = {}
        self._position = self._deletion = 0
        self._complaints = set[Complaint]()
        self._pause = FIRST_PAUSE_S
        self._next_try = self._next_publication = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proof worker", daemon=True)

    def _resume(self) -> list[Commit]:
        """Return the unproved batches of the journal; proved ones are remembered as evidence for duplicates."""
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
        """Run in a thread until ``stop``."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Prove and post the remaining batches, at most ``timeout_s`` seconds for the thread; return whether
        nothing is left.
        """
        has_stopped = self.break_off(timeout_s)
        self._next_try = 0.0
        is_done = has_stopped and self._step_safely()
        if has_stopped:
            self._proof_table.step(now=True)
        if is_done and self._group is not None:
            self._group.flush(self._ends)
        return is_done

    def break_off(self, timeout_s: float) -> bool:
        """Stop after the current step; return whether the thread has ended within ``timeout_s``."""
        return stop_thread(self._thread, self._stop, timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._step_safely()
            self._stop.wait(POLL_INTERVAL_S)

    def _step_safely(self) -> bool:
        try:
            return self.step()
        except Exception as error:  # noqa: BLE001 - for example a full disk: logged and retried
            self._wait(f"{type(error).__name__}: {error}")
            return False

    def enter(self) -> None:
        """Enter new commits in the journal. Raises OSError or ValueError."""
        entered = self._journal.update()
        self._unproved += entered
        for commit in entered:
            self._violations.update(commit.violations)
            self._has_new_violations |= bool(commit.violations)
        if self._has_new_violations:
            # Order: after the journal, which has the counts. Crash: the next start writes them again.
            try:
                write_document(self._layout.contracts, {"violations": dict(self._violations)})
            except OSError as error:
                # The file serves one metric; proofs do not wait for it, and the next step repeats the write.
                if not self._has_warned:
                    _LOGGER.warning("the counts of contract violations cannot be written: %s", error)
                self._has_warned = True
            else:
                self._has_new_violations = self._has_warned = False

    def step(self) -> bool:
        """Enter new commits, prove and post them; return whether nothing is left."""
        self.enter()  # even while proofs are delayed: Spark removes the offsets of old batches
        if time.monotonic() < self._next_try:
            return False
        try:
            self._prove()
            self._post()
            if self._group is not None:
                self._group.report(self._ends)
            self._post_deletions()
            self._publish()
            # Limit: a stop does not wait for Kafka, which may take ANSWER_TIMEOUT_S; the next start posts the ends.
            if self._ledger is not None and self._ends_posts is not None and not self._stop.is_set():
                self._ends_posts.post_if_due(self._ledger)
            self._proof_table.step()
            self._roll_up()
        except LedgerAway as error:
            self._wait(str(error))
            return False
        if self.progress.away:
            _LOGGER.info("proofs continue")
        self.progress.away, self._pause = "", FIRST_PAUSE_S
        return True

    def _wait(self, why: str) -> None:
        if why != self.progress.away:
            _LOGGER.warning("proofs are delayed: %s", why)
        self.progress.away = why
        # Backoff: a daemon that restarts is not asked five times a second.
        self._next_try = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, MAX_PAUSE_S)
        self._through = None

    def _prove(self) -> None:
        while self._unproved:
            commit = self._unproved[0]
            proofs = self._prover.prove(commit)
            backfills = self._prover.backfills(commit)
            # Order: the proof is stored before it is counted as done; a crash in between repeats it with the same
            # outcome.
            write_proofs(self._layout, commit.batch, proofs, backfills)
            self._count(commit, [*proofs, *(backfill.proof for backfill in backfills)])
            del self._unproved[0]

    def _verify(self, topic: str, begin: int, end: int) -> None:
        assert self._ledger is not None
        try:
            self._ledger.verify(topic, begin, end)
        except LedgerRefused as error:
            text = "offsets %d to %d of topic %s are corrupt, and the daemon did not record them: %s"
            _LOGGER.error(text, begin, end, topic, error)

    def _count(self, commit: Commit, proofs: list[Proof]) -> None:
        progress = self.progress
        progress.batch = commit.batch
        self._ends.update(commit.end)
        for proof in proofs:
            progress.rows += proof.rows
            progress.duplicates += proof.total("duplicate")
            progress.quarantined += proof.total("quarantined.")
            progress.unaccounted += len(proof.unaccounted)
            if not proof.holds:
                _LOGGER.error("%s", _alarm(proof))

    def _post(self) -> None:
        """Post the stored proofs that the ledger does not have, in order."""
        if self._ledger is None:
            return
        # A daemon that was unavailable may have lost its ledger, so it is asked again what it has.
        if self._through is None:
            self._through, self._position, self._deletion = self._ledger.through(), 0, 0
            self._posted = dict(self._through)
            if self._lacks_rolled_up(self._through):
                for old in rolled_proofs(self._layout):
                    self._post_batch(self._ledger, self._through, old)
        for position, proved in read_lines_from(self._layout.proofs, ProvedBatch.from_document, self._position):
            self._post_batch(self._ledger, self._through, proved)
            self._position = position

    def _check_posted(self, ledger: LedgerPosts) -> None:
        """Check that the ledger has what it had, and what was posted; else all proofs are posted again.

        A daemon that was away between two calls may have lost its ledger. A post shows it for its topic, this check
        for topics without new proofs. Refused posts are not compared: the posts of a deleted topic are repeated once.
        """
        through = ledger.through()
        if any(end > through.get(topic, 0) for topic, end in self._posted.items()):
            _LOGGER.warning("the ledger has lost proofs: all are posted again")
            self._through = None

    def _lacks_rolled_up(self, through: dict[str, int]) -> bool:
        """Report whether the ledger lacks a rolled-up batch, for example after it was lost."""
        rolled_up_ends = read_sum(self._layout).end
        return any(end > through.get(topic, 0) for topic, end in rolled_up_ends.items() if BACKFILL_MARK not in topic)

    def _post_batch(self, ledger: LedgerPosts, through: dict[str, int], proved: ProvedBatch) -> None:
        for proof in proved.proofs:
            if proof.end > through.get(proof.topic, 0):
                self._post_proof(ledger, proof)
                through[proof.topic] = proof.end
        for backfill in proved.backfills:
            self._post_backfill(ledger, backfill)

    @property
    def all_proved(self) -> bool:
        """Report whether every batch of the table is proved; only then may rows be deleted."""
        return not self._unproved and self.progress.batch >= table_of(self._layout).newest()

    def _post_deletions(self) -> None:
        """Post deletions of rows whose landing the ledger knows."""
        newest = newest_deletion(self._layout)
        # A number up to which everything is posted saves reading all requests.
        if self._ledger is None or newest <= self._deletion:
            return
        record, posted_deletions = DeletionRecord(self._layout), self._ledger.deletions()
        for batch, deletion in record.deleted(self._deletion):
            if batch > self.progress.batch:
                return
            if deletion.number > posted_deletions.get(deletion.topic, 0):
                try:
                    self._ledger.post_document(deletion.document(batch))
                except LedgerRefused as error:
                    _LOGGER.error(
                        "the ledger refused deletion %d of topic %s: %s", deletion.number, deletion.topic, error
                    )
        self._deletion = max((deletion.number for deletion in record.deletions), default=0)

    def _post_complaints(self, ledger: LedgerPosts) -> None:
        """Post faults of other programs' commits as events of the timeline."""
        for complaint in [*noted_complaints(self._layout), *noted_complaints(self._layout, TYPED_COMPLAINTS)]:
            # Fast path: once each run; the ledger recognizes a repeated post by its id.
            if complaint in self._complaints:
                continue
            event_id = f"foreign {complaint.version} {zlib.crc32(complaint.text.encode()):08x}"
            text = complaint.text[:MAX_EVENT_TEXT]
            event = EventPost(event_id, 0, "foreign", complaint.time_ms, complaint.time_ms, cause=text)
            try:
                ledger.post_document(event.document())
            except LedgerRefused as error:
                _LOGGER.error("the ledger refused the event of another program's commit: %s", error)
            self._complaints.add(complaint)

    def _roll_up(self) -> None:
        """Roll up old lines of journal and proofs; all of them are posted."""
        if self._journal.lines >= ROLL_AT:
            rolled, since = latest_proofs(self._layout)
            through = since[-KEEP - 1].batch if len(since) > KEEP else rolled.batch
            # Order: into the table of proofs first. It takes over whole batches, and a stretch has many.
            self._proof_table.step(now=True)
            through = min(through, max(self._proof_table.batch, rolled.batch))
            roll_up(self._layout, through, self._clock.now)
            self._journal.lines, self._position = min(len(since), KEEP), 0

    def _publish(self) -> None:
        """Store the watermarks for SQL; post faults of other programs' commits."""
        if self._ledger is not None and time.monotonic() >= self._next_publication:
            keep_watermarks(self._layout, self._ledger.watermarks())
            self._check_posted(self._ledger)
            self._post_complaints(self._ledger)
            self._next_publication = time.monotonic() + PUBLISH_INTERVAL_S

    def _post_proof(self, ledger: LedgerPosts, proof: Proof) -> None:
        try:
            # The ledger knows only the end of the counted offsets: it must not take a post that would hide a loss.
            ledger.post(proof, self._kafka.end(proof.topic) if self._kafka else 0, self._posted.get(proof.topic, 0))
            self._posted[proof.topic] = proof.end
        except LedgerRefused as error:  # for example a deleted topic; the proof stays stored
            _LOGGER.error("the ledger refused batch %d of topic %s: %s", proof.batch, proof.topic, error)
        self.progress.with_posts = proof.batch

    def _post_backfill(self, ledger: LedgerPosts, backfill: BackfillProof) -> None:
        try:
            # The ledger recognizes a repeated post by request and batch.
            ledger.post_backfill(backfill)
        except LedgerRefused as error:
            batch = backfill.proof.batch
            _LOGGER.error("the ledger refused the backfill of batch %d: %s", batch, error)


def _alarm(proof: Proof) -> str:
    parts = [f"batch {proof.batch}, topic {proof.topic}, offsets {proof.begin} to {proof.end}:"]
    for name, offsets in (("unaccounted", proof.unaccounted), ("not of this batch, or duplicate", proof.unexpected)):
        if offsets:
            shown = ", ".join(map(str, offsets[:10])) + (", ..." if len(offsets) > 10 else "")
            parts.append(f"{len(offsets)} {name} ({shown})")
    return " ".join(parts)

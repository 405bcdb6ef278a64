"""The ledger: the book kept up to date with the log, and its posts stored in the topic ``_ledger``.

Order: a post is synced in ``_ledger`` before it enters the book, and a proof of landed offsets moves the pipeline's
cursor only after that, because retention may remove the evidence from then on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from penstock.counts import Counts, Origin, SourceBucket, bucket_of
from penstock.files.file_system import OS, FileSystem
from penstock.handover.paths import listeners_in, senders_file
from penstock.handover.sender_reading import Senders, read_senders
from penstock.ledger.audit_counts import Audited, audited
from penstock.ledger.balance import (
    Balance,
    UnlandedTail,
    Within,
    duplicates_by_minute,
    landed_by_minute,
    promoted_by_minute,
    with_hosts,
    with_kafka_hosts,
)
from penstock.ledger.balance_from_topics import all_listeners, balance_of, gaps_of, identity_of_gaps, unlanded_tail
from penstock.ledger.book import checkpoint
from penstock.ledger.book.book_from_topics import TOPIC, enter, resume, unreadable
from penstock.ledger.book.book_pages import BookPages, TopicFates
from penstock.ledger.book.daily_rollup import horizon
from penstock.ledger.book.senders import SenderState, changed_senders, sender_states, silent_hosts
from penstock.ledger.handler_deliveries import handler_deliveries
from penstock.ledger.hosts import hosts, kafka_hosts, over_kafka
from penstock.ledger.hosts.host_posts import HOST_TIER
from penstock.ledger.hosts.hosts import HostRegister
from penstock.ledger.hosts.kafka_hosts import ENDS_TIER, KAFKA_HOST_TIER, KafkaHostRegister
from penstock.ledger.in_buffer import BufferedCounts
from penstock.ledger.posts import (
    AuditPost,
    BadPost,
    ClientPost,
    EventPost,
    LacksPosts,
    LandedPost,
    Post,
    SenderPost,
    dump,
    parse,
)
from penstock.ledger.receipt import Losses, losses_of
from penstock.ledger.time_series import document, series, whole_step
from penstock.ledger.watermarks import Watermark, watermarks
from penstock.log import (
    InvalidTopicName,
    Log,
    LogFull,
    StoredBatch,
    TopicReader,
    UnknownFormat,
    UnknownTopic,
)
from penstock.log.read.glance import IntactTopic, glance
from penstock.qualified_names import is_partition, relayed_name
from penstock.records import body

CURSOR = "pipeline"
"""Cursor of each topic: the offset up to which the pipeline has landed and proved."""
MAX_TOPICS_OPENED_AT_START = 100
"""Limit for the topics that every start opens, which verifies their last segments.

Other topics are opened if their files look damaged, and otherwise on demand.
"""

SENDER_POST_INTERVAL_S = 3600.0
"""Interval of posts of senders, which are stored forever: a table that is lost costs the counts of an hour."""
MAX_HELD_EVENTS = 1_000
"""Limit for the events that wait for space on the disk; the supervisor sends again as many."""
_LOGGER = logging.getLogger(__name__)


class Ledger:
    """The books of one log and its listeners. ``buffers`` is the folder of their log buffers; ``now`` gives seconds
    since the epoch.

    Owned by the log daemon. Threads: the book has its own lock; checkpoints are written one at a time.
    """

    def __init__(
        self,
        log: Log,
        buffers: Path,
        listeners: Iterable[str],
        now: Callable[[], float] = time.time,
        fs: FileSystem = OS,
    ) -> None:
        self._log, self._buffers, self.listeners = log, buffers, list(listeners)
        self._time, self._fs = now, fs
        self._buffered = BufferedCounts(buffers)
        self.missing: dict[str, tuple[int, int]] = {}
        """Topics that lost entries while no daemon ran: their end, and the end up to which entries were counted."""
        intact, unrecovered = _open_topics(log)
        self._book = resume(
            log.directory,
            self._verify,
            self._horizon(),
            intact,
            lambda topic, end, counted: self.missing.update({topic: (end, counted)}),
            unrecovered,
        )
        self.hosts = HostRegister(log.directory.parent / hosts.FOLDER, self._book.arrived, now)
        kafka_hosts_folder = log.directory.parent / kafka_hosts.FOLDER
        self.kafka_hosts = KafkaHostRegister(kafka_hosts_folder, self._book.landed_through, now)
        self._offsets_in_flight: list[int] = []
        self._losses: tuple[object, Losses] = None, {}
        self._last_version = -1
        self._last_reason = ""
        self._checkpoint_lock = threading.Lock()
        self._held: dict[str, EventPost] = {}
        self.live: dict[str, EventPost] = {}
        """Current versions of events that the log has in an older version or not at all."""
        # Order: the book is read first. The servers start later, so no batch is stored in between.
        log.observe(self._stored)
        log.observe_recoveries(self._recovered)
        for name in unrecovered:
            # Those that have been recovered since were not observed.
            if (topic := log.topic(name, internal=True)).is_recovered:
                self._recovered(name, topic.end)
        self.roll_up()

    def _stored(self, topic: str, stored: StoredBatch) -> None:
        # A post is entered by `post`, whose caller waits for the answer.
        if topic != TOPIC:
            self._book.enter(topic, stored.origin, stored.base, stored.rows, stored.last)

    def _recovered(self, topic: str, end: int) -> None:
        """Enter rows and gaps of a topic that the start could not recover because the disk was full."""
        if end > self._book.covered(topic):
            enter(self._book, TopicReader(self._log.directory / topic))

    def _verify(self, topic: str, begin: int, end: int) -> None:
        self._log.topic(topic, internal=True).verify(begin, end)

    def post(self, document: Any) -> bool:
        """Store a post; return whether it reports anything new, once it is synced.

        Raises BadPost, LacksPosts, LogFull, WriteFailed, and OSError for the post of a host.
        """
        if isinstance(document, Mapping) and document.get("tier") == HOST_TIER:
            return self.hosts.post(document)
        if isinstance(document, Mapping) and document.get("tier") == KAFKA_HOST_TIER:
            return self.kafka_hosts.post(document)
        if isinstance(document, Mapping) and document.get("tier") == ENDS_TIER:
            return self.kafka_hosts.post_ends(document)
        post = parse(document)
        self._refuse_impossible(post)
        return self._store(post)

    def _store(self, post: Post) -> bool:
        now = self._time()
        origin = Origin("ledger", bucket_of(now), int(now * 1e6), int(now * 1e6))
        topic = self._log.topic(TOPIC, create=True, internal=True)
        # Crash: a post that is synced and not entered is read from the log at the next start. Until it is entered, no
        # checkpoint may cover it.
        with self._in_flight(topic.end):
            stored = topic.append(body([dump(post)]), origin)
            self._log.committers.wait([stored])
            stored.result()
            is_new = self._book.post(post, origin.bucket)
        if isinstance(post, EventPost) and post.id in self._held:
            self._held = {event_id: event for event_id, event in self._held.items() if event_id != post.id}
        if isinstance(post, LandedPost) and post.through and not is_partition(post.topic):
            # Order: the cursor moves last. Retention may drop what is before it, and that was the evidence of the
            # proof.
            # A deleted topic has no cursor: the rest of its offsets is proved to be a gap.
            with contextlib.suppress(UnknownTopic):
                self._log.topic(post.topic).cursors.commit(CURSOR, post.through)
        return is_new

    @contextlib.contextmanager
    def _in_flight(self, offset: int) -> Iterator[None]:
        """Mark posts from ``offset`` on as possibly stored and not yet in the book."""
        # Threads: several callers may post from the same offset, so this is a list and no set.
        self._offsets_in_flight.append(offset)
        try:
            yield
        finally:
            self._offsets_in_flight.remove(offset)

    def write_checkpoint(self) -> None:
        """Write a checkpoint if anything is new. Raises OSError."""
        # A full log must not prevent the checkpoint; the senders are posted by a later one.
        with contextlib.suppress(LogFull):
            self.post_senders(SENDER_POST_INTERVAL_S)
        self.roll_up()
        with self._checkpoint_lock:
            self._cover_posts()
            # Order: the version first. A change after it is written by the next checkpoint, too.
            if (version := self._book.version) == self._last_version:
                return
            pages = self._book.snapshot()
            reason = self._reason_against_checkpoint(pages)
            # Logged once: the keeper tries again every minute.
            if reason and reason != self._last_reason:
                _LOGGER.warning("ledger: no checkpoint, so the next start reads all batches: %s", reason)
            if not reason:
                checkpoint.write(self._log.directory, pages, self._fs)
            self._last_version, self._last_reason = version, reason

    def _cover_posts(self) -> None:
        """Mark ``_ledger`` as entered up to the first post in flight."""
        end = self._log.topic(TOPIC, internal=True).end if TOPIC in self._log.names(internal=True) else 0
        # Order: the end is read first. A post that begins later lies after it.
        self._book.cover(TOPIC, min([end, *self._offsets_in_flight]))

    def _reason_against_checkpoint(self, pages: BookPages) -> str:
        """Return why a book rebuilt from files would differ from ``pages``; empty if it would not."""
        for name, mark in sorted(pages.covered.items()):
            gaps = gaps_of(self._log.directory / name)
            if name in self._book.skipped or unreadable(gaps, mark.end) != sorted(
                pages.unreadable_ranges.get(name, [])
            ):
                return f"offsets of topic {name} can no longer be read"
        return ""

    def roll_up(self) -> None:
        """Sum buckets older than the retention of every topic by day, unless the clock is implausible."""
        if (before := self._horizon()) is not None:
            self._book.roll_up(before)

    def _horizon(self) -> int | None:
        """Return the time before which buckets may be rolled up; None while the clock is implausible."""
        ages = [self._log.settings(name).stale_after for name in self._log.names()]
        return horizon(self._time(), ages) if self._log.clock.right else None

    def _refuse_impossible(self, post: Post) -> None:
        """Raise BadPost for a post that cannot be true: posts are stored forever, so no wrong one can be undone.

        Raises LacksPosts for a landed range whose earlier ones are lost: their posts would count no more.
        """
        if isinstance(post, AuditPost | EventPost):
            return
        if isinstance(post, ClientPost | SenderPost):
            if post.listener not in self.listeners:
                raise BadPost(f"there is no listener {post.listener!r}")
            return
        end = max(post.end, post.through) if is_partition(post.topic) else self._end(post.topic)
        landed_through, landed_rows = self._book.landed_progress(post.topic)
        if landed_through < post.after:
            raise LacksPosts(f"topic {post.topic!r} has landed up to {landed_through} here, and not {post.after}")
        rows = sum(counts.rows() for counts in post.counts.values())
        if post.backfill:
            if rows > end or any(stop > end for _, stop in post.ahead):
                raise BadPost(f"topic {post.topic!r} has no such offsets: it ends at {end}")
            return
        if post.deletion:
            if rows > landed_rows:
                raise BadPost(f"topic {post.topic!r} has fewer landed rows than the deletion removes")
            return
        # A repeated post lies behind ``landed_through``: it is stored, and changes nothing. Crash: a disk that lies
        # about syncs may have lost its rows since.
        if post.through > max(end, landed_through) or rows > max(post.through - landed_through, 0) > 0:
            raise BadPost(f"topic {post.topic!r} has no {rows} offsets from {landed_through} to {post.through}")

    def _end(self, topic: str) -> int:
        """Return the end of a topic, deleted ones included.

        Raises BadPost for an unknown topic, and LogFull and WriteFailed if the topic cannot be recovered now.
        """
        try:
            live = self._log.topic(topic)
            # Order: recovered first. The end of an unrecovered topic may be too early, so that a true post is refused.
            live.recover()
            return live.end
        except InvalidTopicName:
            raise BadPost(f"there is no topic {topic!r}") from None
        except UnknownTopic:
            # The folder of a deleted topic stays with its gaps, so that a late proof can still be checked.
            deleted_topic = self._log.directory / topic
            if not deleted_topic.is_dir():
                raise BadPost(f"there is no topic {topic!r}") from None
            return TopicReader(deleted_topic).end

    def landed(self) -> dict[str, TopicFates]:
        """Return the landed fates by topic."""
        return self._book.snapshot().landed

    def audits(self, within: Within = None) -> list[Audited]:
        """Return the counts of auditors of Kafka clients, limited to the buckets ``within`` if given."""
        return audited(self._book.snapshot(), within)

    def post_senders(self, interval_s: float = 0.0) -> None:
        """Post the senders that have changed since the last post, which is ``interval_s`` ago. Raises LogFull.

        The interval is listening time, and the book has the time of the last post: restarts do not begin it again.
        """
        pages = self._book.senders()
        for listener in self.listeners:
            if (table := self.sender_table(listener)) is None:
                continue
            of_listener = pages.get(listener)
            posted_us = of_listener.versions.get(table.file_id, 0) if of_listener else 0
            if table.listened - posted_us / 1e6 >= interval_s:
                for part in changed_senders(of_listener, table):
                    self._store(SenderPost(listener, table.file_id, int(table.listened * 1e6), part))

    def sender_table(self, listener: str) -> Senders | None:
        """Return the senders of a listener as of now; None if its receiver counts none."""
        return read_senders(senders_file(self._buffers, listener))

    def senders(self, receivers: Iterable[str], expect_s: float) -> list[SenderState]:
        """Return the senders of a listener with these receivers, the largest first."""
        pages = self._book.senders()
        return sender_states([(pages.get(name), self.sender_table(name)) for name in receivers], expect_s)

    def silent_hosts(self, now: float) -> dict[str, float]:
        """Return the hosts that relay to this one and have stopped at ``now``, and for how long (seconds)."""
        return silent_hosts(self._book.snapshot().logged, now)

    def hold_event(self, document: Any) -> None:
        """Show an event that cannot be stored now, as on a full disk, until its sender posts it again.

        Raises BadPost.
        """
        post = parse(document)
        if isinstance(post, EventPost):
            held = {event_id: event for event_id, event in self._held.items() if event_id != post.id}
            # Limit: an event that the supervisor has dropped is not posted again. Threads: replaced as a whole, see
            # ``live``.
            self._held = dict([*held.items(), (post.id, post)][-MAX_HELD_EVENTS:])

    def events(self) -> list[EventPost]:
        """Return the events, the oldest first."""
        return list((self._book.events() | self._held | self.live).values())

    def event(self, event_id: str) -> EventPost | None:
        """Return the event with this id as stored in the log."""
        return self._book.events().get(event_id)

    def event_losses(self) -> dict[str, Counts]:
        """Return the losses by place that stored events report."""
        return self._book.event_losses()

    def balance(self, within: Within = None) -> Balance:
        """Return the current balance, limited to the buckets ``within`` if given."""
        # Order: hosts over Kafka first, because what they know to have landed must be in the pages.
        kafka_hosts_states = self.kafka_hosts.settled_states()
        # Fast path: only selected minutes, and hosts that forward to Kafka, need buckets.
        summary = partial(self._book.summary, with_landed=bool(kafka_hosts_states))
        read = summary if within is None else self._book.snapshot
        pages, in_buffer = self._with_buffers(read)
        total = balance_of(pages, self._log.directory, in_buffer, within, self._buffers)
        # Posts of hosts have no minutes.
        if within is not None:
            return total
        # Fast path: only minutes that a host still counts separately are read one by one.
        since = over_kafka.separate_since(kafka_hosts_states, pages.rolled)
        promoted = promoted_by_minute(pages.landed, since)
        arrived = landed_by_minute(pages.landed, since | dict.fromkeys(promoted, 0))
        # Only of a host that has lost a disk: a duplicate of any other host counts as arrived, like any message.
        former = {relayed_name(name, listener) for name, host in kafka_hosts_states.items() for listener in host.closed}
        duplicates = duplicates_by_minute(pages.landed, {name: since[name] for name in former})
        compared = over_kafka.compare(kafka_hosts_states, arrived, pages.rolled, promoted, duplicates)
        return with_kafka_hosts(with_hosts(total, self.hosts.states), compared)

    def losses(self) -> Losses:
        """Return the losses of the balance, by listener, API or topic, and by reason.

        They are computed again only after a change: with a thousand topics that takes 40 ms.
        """
        # Order: the version first. A change after it is newer than this state at the next call.
        version = self._book.version
        pages, in_buffer = self._with_buffers(self._book.summary)
        deliveries = handler_deliveries(self._buffers, listeners_in(self._buffers))
        # Order: before the gaps are read. A gap that is made in between differs from this state at the next call.
        state = (
            version,
            in_buffer,
            deliveries,
            [identity_of_gaps(self._log.directory, name) for name in pages.logged],
        )
        if state != self._losses[0]:
            document = balance_of(pages, self._log.directory, in_buffer, None, self._buffers).document()
            self._losses = state, losses_of(document)
        return self._losses[1]

    def _with_buffers(self, read: Callable[[], BookPages]) -> tuple[BookPages, dict[SourceBucket, Counts]]:
        """Return the book as ``read`` gives it, and the counts of the frames that are not in it."""
        with self._buffered.frames(all_listeners(self._buffers, self.listeners)) as waiting_frames:
            # Order: buffers first. The book's position tells a frame that is stored in between, so it counts once.
            # Only between the answer to its append and its entry in the book, for microseconds, it may be in neither.
            return (pages := read()), waiting_frames.counts(partial(self._entered_position, pages))

    def _entered_position(self, pages: BookPages, topic: str, buffer: str) -> int:
        """Return the position up to which ``pages`` have the frames of a log buffer that ``topic`` stores."""
        entered = pages.positions.get(topic, {}).get(buffer)
        # What a recovery has found is in the book as well.
        return self._log.recovered_position(topic, buffer) if entered is None else entered

    def watermarks(self) -> list[Watermark]:
        """Return up to which minute the tables are complete."""
        # Order: upstream first. A message that moves in between is seen twice, which only lowers the watermark.
        in_buffer = self._buffered.counts(all_listeners(self._buffers, self.listeners))
        pages = self._book.snapshot()
        return watermarks(pages, self._unlanded_tails(pages), in_buffer, self._time())

    def _unlanded_tails(self, pages: BookPages) -> dict[str, UnlandedTail]:
        return {name: unlanded_tail(self._log.directory, pages, name) for name in pages.logged}

    def series(self, since: int, step: int) -> dict[str, Any]:
        """Return the balance over time from ``since`` (seconds since the epoch) in intervals of ``step`` seconds."""
        pages, in_buffer = self._with_buffers(self._book.snapshot)
        step = whole_step(step)
        return document(series(pages, self._unlanded_tails(pages), in_buffer, since, step), step, pages.rolled)


def _open_topics(log: Log) -> tuple[dict[str, IntactTopic], set[str]]:
    """Open topics, and so recover them; return the closed ones, and the names of what a full disk left unrecovered.

    The first ``MAX_TOPICS_OPENED_AT_START`` topics are always opened, others are if their files do not look intact.
    """
    intact, unrecovered = dict[str, IntactTopic](), set[str]()
    for number, name in enumerate(log.names(internal=True)):
        try:
            if number >= MAX_TOPICS_OPENED_AT_START and (glanced := glance(log.directory / name)) is not None:
                intact[name] = glanced
            # Order: opening a topic recovers it. Only then is it read.
            elif not log.topic(name, internal=True).is_recovered:
                unrecovered.add(name)
        except UnknownFormat as error:
            # Files of another format stay unchanged, and out of the balance.
            _LOGGER.error("%s", error)
    return intact, unrecovered

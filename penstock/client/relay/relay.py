"""The process of one ``[[relay]]``: ``python -m penstock.client.relay.relay``, its task on standard input.

Invariant: each entry is stored once on the other side, in the order of the topic. Order: ranges are entered in a
file, appended under their numbers, then the cursor of the topic moves behind them. A kill at any moment repeats these
steps under the same numbers. Crash: entries of a range that are gone by then, as after the deletion of the topic, which
takes the cursor with it, cannot be repeated; whether they had arrived is asked of the other side under their number.
"""

from __future__ import annotations

from penstock.process.tuning import tune

tune("forwarder")  # first, see penstock.process.tuning

import contextlib
import json
import logging
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.log.client import Log
from penstock.client.log.connection import MAX_MESSAGE
from penstock.client.log.types import ClientError, NoSuchTopic, OutOfSequence, StoredAlready, Unavailable
from penstock.client.relay.clients import Credentials, local_client, remote_client
from penstock.client.relay.positions import BAD_FILE, RelayPosition, RelayPositionFile
from penstock.client.relay.ranges import MAX_RANGES, MIN_BYTES, Range, bytes_for_link, next_ranges, reread_range
from penstock.client.relay.registration import Registration
from penstock.client.relay.tally import TopicTally, relayed_listener, relayed_origin
from penstock.config import RelayConfig, Settings
from penstock.counts import Origin
from penstock.errors import PenstockError
from penstock.files.errors import FileError
from penstock.files.file_system import OS, make_folder
from penstock.handover.disk_id import hop_of, load_disk_id
from penstock.handover.heartbeat import Heartbeat
from penstock.handover.paths import RELAYS_FOLDER, relay_state_file
from penstock.handover.state_page import RELAY_TEXTS, STATISTICS, StatePage
from penstock.ledger.hosts.host_posts import ListenerReport
from penstock.log import CorruptBatch, LogError, TopicReader
from penstock.process.kernel import die_with_parent
from penstock.process.reporting import configure, starting
from penstock.records import EMPTY_BODY

POLL_INTERVAL_S = 0.2
"""Interval at which topics are examined for new entries: two stat calls each."""
FIRST_RETRY_DELAY_S, MAX_RETRY_DELAY_S = 0.1, 5.0
PRODUCER_MEMORY_S = 86400
"""Default of transactions.producer_memory: the other side may forget a producer that is silent for longer."""
MAX_ENTRY_BYTES = MAX_MESSAGE - (1 << 20)
"""Payload of an entry that an append certainly has room for, next to key, annotations and origin."""
PUBLISH_INTERVAL_S = 1.0
MAX_REPORTED_TOPICS = 150
"""Limit: topics of a relay with metrics; a text has 64 KiB, and a topic's name up to 249 bytes."""
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class TopicStatistics:
    """Counts of the relay of one topic since its start. ``bytes`` are of payloads."""

    entries: int = 0
    bytes: int = 0
    retries: int = 0
    refusals: int = 0


class Outage:
    """The failures in a row of one topic: a line when they begin, when their cause changes, and when they end."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._cause, self._delay_s, self._began_at, self._retry_at = "", FIRST_RETRY_DELAY_S, 0.0, 0.0

    @property
    def is_open(self) -> bool:
        """Report whether the last attempt failed."""
        return bool(self._cause)

    @property
    def is_waiting(self) -> bool:
        """Report whether the next attempt is not due yet."""
        return time.monotonic() < self._retry_at

    def fail(self, cause: str) -> None:
        """Enter a failure; the delay until the next attempt doubles."""
        now = time.monotonic()
        if not self._cause:
            self._began_at = now
        if cause != self._cause:
            _LOGGER.warning("topic %s is not relayed: %s; retrying", self._topic, cause)
        self._cause, self._retry_at = cause, now + self._delay_s
        self._delay_s = min(2 * self._delay_s, MAX_RETRY_DELAY_S)

    def end(self) -> None:
        """Enter a success."""
        if self._cause:
            _LOGGER.info("topic %s is relayed again after %.0f s", self._topic, time.monotonic() - self._began_at)
        self._cause, self._delay_s = "", FIRST_RETRY_DELAY_S


class TopicRelay:
    """The relay of one topic. ``local`` and ``remote`` are clients of both daemons, shared with the other topics."""

    def __init__(self, config: RelayConfig, topic: str, settings: Settings, local: Log, remote: Log) -> None:
        self._topic, self._target = topic, config.to_topic or topic
        self._host, self._to = config.host_name, config.to
        self._hop = hop_of(load_disk_id(settings.data_dir / RELAYS_FOLDER), topic)
        self._cursor = f"relay-{config.name}"
        self._folder, self._local, self._remote = settings.topics / topic, local, remote
        self._file = RelayPositionFile(settings.data_dir / RELAYS_FOLDER / config.name / f"{topic}.json")
        self._outage = Outage(topic)
        self._reader: TopicReader | None = None
        self._next = -1
        """The offset behind the last acknowledged entry; -1 before the first look at file and cursor."""
        self._committed = 0
        """The topic's cursor; before ``_next`` if the entries between were gone."""
        self._producer, self._sequence = uuid.uuid4().hex, 0
        self._entered: list[RelayPosition] = []
        """The ranges in the file, one by one."""
        self._pending: list[RelayPosition] = []
        """The ranges that are not acknowledged yet, the last ones of the file."""
        self._may_be_stored = False
        self._max_bytes = MIN_BYTES
        """Bytes that travel together: as many as the link carries in a few seconds."""
        self._tally = TopicTally(self._host)
        self.statistics = TopicStatistics()
        self.is_away = False
        """Whether the other side could not be reached by the last append."""

    @property
    def name(self) -> str:
        """The topic of this host."""
        return self._topic

    @property
    def is_failing(self) -> bool:
        """Report whether the last attempt failed."""
        return self._outage.is_open

    def prepare(self) -> None:
        """Read position and counts, so that they can be posted before the first entry is relayed."""
        # A failure is repeated, and named, by the first attempt to relay.
        with contextlib.suppress(ClientError, FileError, LogError, OSError):
            if self._next < 0:
                self._resume()

    def count(self) -> tuple[dict[str, ListenerReport], int]:
        """Return the counts by listener, and the time (us) of the oldest entry that is pending; 0 without one.

        Raises OSError, FileError and LogError.
        """
        if self._next < 0:
            return {}, 0
        reader = self._reader = self._reader or TopicReader(self._folder)
        self._tally.count_to(reader, reader.end)
        in_doubt = Counter[str]()
        for pending in self._pending if self._may_be_stored else []:
            in_doubt[pending.listener] += pending.rows
        reports = {
            name: ListenerReport(
                accepted=tally.accepted,
                forwarded=tally.forwarded,
                expired=tally.expired,
                pending=max(tally.accepted - tally.forwarded - tally.expired, 0),
                in_doubt=in_doubt[name],
            )
            for name, tally in self._tally.listeners.items()
        }
        return reports, reader.backlog(self._next)[2]

    def relay_once(self) -> bool:
        """Relay the next ranges, if there are any; report whether there were. A failure waits for its next attempt."""
        if self._outage.is_waiting:
            return False
        try:
            has_relayed = self._relay_next()
        except (ClientError, FileError, LogError, OSError) as error:
            self._reader = None
            if not self._folder.is_dir():
                return False
            self.statistics.retries += 1
            self._outage.fail(_describe(error))
            return False
        if has_relayed:
            self._outage.end()
        return has_relayed

    def _relay_next(self) -> bool:
        if self._next < 0 and not self._resume():
            return False
        try:
            return self._relay_range()
        except CorruptBatch as damage:
            # The daemon makes a gap of the damaged entries, counted as lost; the next attempt continues behind it.
            self._local.verify(self._topic, damage.begin, damage.end)
            raise

    def _relay_range(self) -> bool:
        had_reader, reader = self._reader is not None, self._reader or TopicReader(self._folder)
        self._reader = reader
        is_shorter = reader.ends_before(self._pending[-1].end if self._pending else self._next)
        # Without a reader the last attempt failed, as while there was no folder.
        if is_shorter or (not had_reader and self._is_another_topic(reader)):
            # The folder was replaced while this process ran.
            self._next = -1
            return self._resume()
        if self._pending:
            first = self._pending[0]
            return self._send(reader, first, reread_range(reader, first.begin, first.end))
        # Order: the end before the entries. Without one up to it, all are gone.
        end, ranges = reader.end, next_ranges(reader, self._next, MAX_RANGES, self._max_bytes)
        begin = ranges[0].begin if ranges else end
        if begin > self._next:
            text = "topic %s: the entries [%d, %d) were gone before they were relayed"
            _LOGGER.warning(text, self._topic, self._next, begin)
            # Invariant: tally and offset advance together; otherwise a retry would count the entries again.
            self._tally.expire(reader, begin)
            self._next = begin
        if not ranges:
            return False
        self._enter(reader, ranges)
        return self._send(reader, self._pending[0], ranges[0]) if len(ranges) == 1 else self._send_all(reader, ranges)

    def _resume(self) -> bool:
        """Continue behind what was acknowledged; report whether the topic exists."""
        if not self._folder.is_dir():
            return False
        try:
            cursors = {cursor.name: cursor.offset for cursor in self._local.cursors(self._topic)}
        except NoSuchTopic:
            return False
        cursor, position = cursors.get(self._cursor), self._read_position(cursors.get(self._cursor))
        self._entered = position.split() if position is not None else []
        # Crash: these appends were entered, and nothing shows that they were acknowledged.
        self._pending = [each for each in self._entered if cursor is None or not each.is_acknowledged(cursor)]
        self._may_be_stored = bool(self._pending)
        start = self._pending[0].begin if self._pending else cursor or 0
        if self._entered:
            self._producer, self._sequence = self._entered[-1].producer, self._entered[-1].sequence
        reader = self._reader = TopicReader(self._folder)
        relayed = max([start, *(each.end for each in self._entered)])
        is_shorter = reader.ends_before(relayed)
        if has_restarted := is_shorter or self._is_another_topic(reader):
            start = min(cursor or 0, reader.end)
            ends = f"ends at {reader.end}, and {relayed} were relayed"
            self._drop_entered(ends if is_shorter else "is not the one that was relayed", start)
        self._resume_tally(reader, position, start)
        if cursor is None or has_restarted:
            # With retention_policy "keep" retention waits for this reader from now on.
            self._local.commit_cursor(self._topic, self._cursor, start)
        self._warn_of_settings()
        self._next, self._committed = start, start if cursor is None else cursor
        return True

    def _is_another_topic(self, reader: TopicReader) -> bool:
        """Report whether another entry has the offset of the last one that was entered."""
        if not self._entered or not self._entered[-1].stored_us:
            return False
        # Limit: an entry that is gone shows nothing, as that of a topic that was deleted: its offsets continue.
        return _time_of(reader, self._entered[-1].end - 1) not in (0, self._entered[-1].stored_us)

    def _drop_entered(self, fault: str, start: int) -> None:
        """Begin again with a topic whose offsets now name other entries."""
        text = (
            "topic %s %s: its folder was removed, or comes from an older copy; it is relayed from offset %d on, as "
            "another producer: entries may be stored twice"
        )
        _LOGGER.warning(text, self._topic, fault, start)
        # Limit: the ranges that were entered last are not counted. The other side counts what has arrived of them.
        self._entered, self._pending, self._may_be_stored = [], [], False
        self._renew_producer()

    def _resume_tally(self, reader: TopicReader, position: RelayPosition | None, start: int) -> None:
        if position is None or position.tally is None:
            self._tally = TopicTally.from_files(self._host, reader, start)
            return
        if position.host and (position.host, position.to) != (self._host, self._to):
            # Another host's counts, or those for another daemon, in which nothing of this host has arrived yet.
            self._tally = TopicTally(self._host, start)
            return
        tally = self._tally = TopicTally.from_stored(self._host, position.tally, position.begin)
        for acknowledged in self._entered[: len(self._entered) - len(self._pending)]:
            tally.accept(acknowledged.listener, acknowledged.begin, acknowledged.end)
            tally.forward(acknowledged.listener, acknowledged.rows)
            tally.expire_of(acknowledged.listener, acknowledged.end - acknowledged.begin - acknowledged.rows)
        if self._entered and start > self._entered[-1].end:
            # A person moved the cursor: what is between is never relayed.
            tally.expire(reader, start)
        # What is behind a cursor that was moved back is relayed, and accepted, again.
        tally.counted_end = start
        for pending in self._pending:
            tally.accept(pending.listener, pending.begin, pending.end)

    def _warn_of_settings(self) -> None:
        (topic,) = self._local.describe(self._topic)
        if topic.settings["retention_policy"] != "keep":
            text = (
                'topic %s: retention may drop entries before they are relayed; retention_policy = "keep" prevents that'
            )
            _LOGGER.warning(text, self._topic)
        # Such an entry lets its topic wait for ever: nothing that is stored is left out.
        limit = topic.settings["message_size_limit"]
        if isinstance(limit, int) and limit > MAX_ENTRY_BYTES:
            text = "topic %s: entries of more than %d MiB cannot be relayed; a lower message_size_limit prevents them"
            _LOGGER.warning(text, self._topic, MAX_ENTRY_BYTES >> 20)

    def _read_position(self, cursor: int | None) -> RelayPosition | None:
        try:
            position, reason = self._file.read(), "its position is missing"
        except BAD_FILE as error:
            position, reason = None, f"{error}, and is set aside as {self._file.set_aside()}"
        if position is None and cursor:
            text = "topic %s: %s; it continues at its cursor: entries from offset %d on may be stored twice"
            _LOGGER.error(text, self._topic, reason, cursor)
        return position

    def _enter(self, reader: TopicReader, ranges: Sequence[Range]) -> None:
        """Enter ranges that are sent under the next numbers."""
        tally, sent = self._tally.stored(), int(time.time())
        stored_us = ranges[-1].stored_us or _time_of(reader, ranges[-1].end - 1)
        entered = [
            RelayPosition(
                self._producer,
                sequence,
                batches.begin,
                batches.end,
                sent,
                relayed_listener(self._host, batches.origin.source),
                batches.end - batches.begin,
                tally,
                self._host,
                self._to,
                self._committed,
                stored_us=stored_us,
            )
            for sequence, batches in enumerate(ranges, self._sequence + 1)
        ]
        self._file.write(RelayPosition.join(entered))
        # While their listeners are known: a gap in which they are later has no order.
        for position in entered:
            self._tally.accept(position.listener, position.begin, position.end)
        # Order: after the write. Numbers that were not entered are used for the next attempt.
        self._sequence, self._entered, self._pending = entered[-1].sequence, entered, [*entered]
        self._may_be_stored = False

    def _send_all(self, reader: TopicReader, ranges: Sequence[Range]) -> bool:
        """Send all entered ranges. Those that are not stored by it are sent again, one by one."""
        self._may_be_stored = True
        appends = [
            (batches.rows, (pending.producer, pending.sequence), relayed_origin(self._host, batches.origin, self._hop))
            for pending, batches in zip(self._pending, ranges, strict=True)
        ]
        answers: list[list[int]] = []
        began = time.monotonic()
        with contextlib.suppress(OutOfSequence), self._noting_outcome():
            answers = self._remote.append_batches(self._target, appends)
        if len(answers) == len(ranges):
            self._note_speed(sum(batches.rows.nbytes for batches in ranges), began)
        self._acknowledge(reader, [(batches, batches.rows.num_rows) for batches in ranges[: len(answers)]])
        return True

    def _send(self, reader: TopicReader, pending: RelayPosition, batches: Range | None) -> bool:
        """Send the first range that is pending; ``batches`` are its entries that are left."""
        arrived = self._append(pending, batches) if batches else self._find_append(pending)
        if not arrived:
            return True
        if missing := pending.end - pending.begin - arrived:
            text = "topic %s: %d of the interrupted entries [%d, %d) were gone before they could be sent again"
            _LOGGER.warning(text, self._topic, missing, pending.begin, pending.end)
            # Order: before the cursor. A start that finds it behind the range counts ``rows`` as forwarded.
            self._entered[-len(self._pending)] = replace(pending, rows=arrived)
            self._file.write(RelayPosition.join(self._entered))
        # An attempt that failed is in doubt: it may be stored, and a repetition needs the producer's number.
        if self._may_be_stored and time.time() - pending.sent > PRODUCER_MEMORY_S:
            text = "topic %s: the interrupted entries [%d, %d) are stored twice if the other side forgot their producer"
            _LOGGER.warning("%s (transactions.producer_memory)", text % (self._topic, pending.begin, pending.end))
        self._acknowledge(reader, [(batches, arrived)])
        return True

    def _acknowledge(self, reader: TopicReader, arrived: Sequence[tuple[Range | None, int]]) -> None:
        """Move behind the first pending ranges: of each the entries that were left here, and how many have arrived."""
        if not arrived:
            return
        acknowledged, pending = self._pending[: len(arrived)], self._pending[len(arrived) :]
        # Order: files that cannot be read stop this before anything moves. Ranges of an interrupted attempt are counted
        # only here if they were entered by an earlier version, or for another host or daemon.
        self._tally.count_to(reader, acknowledged[-1].end)
        # Order: the cursor after the acknowledgement, because retention may remove what is before it.
        self._local.commit_cursor(self._topic, self._cursor, acknowledged[-1].end)
        self._next = self._committed = acknowledged[-1].end
        self._pending, self._may_be_stored = pending, self._may_be_stored and bool(pending)
        for position, (batches, count) in zip(acknowledged, arrived, strict=True):
            # Compatibility: a position of an earlier version does not name the listener.
            source = batches.origin.source if batches else ""
            listener = position.listener or relayed_listener(self._host, source)
            self._tally.forward(listener, count)
            self._tally.expire_of(listener, position.end - position.begin - count)
            if batches is not None:
                self.statistics.entries += batches.rows.num_rows
                lengths = pc.binary_length(batches.rows["payload"])  # type: ignore[call-overload]  # no Array[Any]
                self.statistics.bytes += pc.sum(lengths).as_py() or 0

    def _append(self, pending: RelayPosition, batches: Range) -> int:
        """Append a range; return the number of entries that are stored; 0 if it is sent again as another producer."""
        origin, number = relayed_origin(self._host, batches.origin, self._hop), (pending.producer, pending.sequence)
        self._may_be_stored = True
        try:
            self._append_rows(batches.rows, number, origin)
        except OutOfSequence as error:
            is_whole = batches.rows.num_rows == pending.end - pending.begin
            if not is_whole and isinstance(error, StoredAlready):
                # The number is stored with more rows: they had arrived before a part of them expired here.
                return self._find_append(pending)
            # The number is stored with other rows, or is not the next one: one side was restored from a backup.
            text = "topic %s: the entries [%d, %d) are sent as another producer, and may be stored twice: %s"
            _LOGGER.warning(text, self._topic, pending.begin, pending.end, error)
            self._renew_producer()
            # Crash: a start finds the range that is entered, and is refused as here. The next attempt enters another.
            self._pending, self._may_be_stored = [], False
            return 0
        return batches.rows.num_rows

    def _find_append(self, pending: RelayPosition) -> int:
        """Return the number of entries of a range that the other side has, of which this side has none; 0 for none."""
        origin = relayed_origin(self._host, Origin(pending.listener, 0, 0, 0), self._hop)
        offsets: list[int] = []
        try:
            offsets = self._append_rows(EMPTY_BODY, (pending.producer, pending.sequence), origin)
        except StoredAlready:
            return _entered_rows(pending)  # the other side remembers the number, and no longer how many rows it had
        except OutOfSequence:
            pass  # the other side was restored from a backup
        if offsets:
            # Limit: no more than were sent, whatever the other side says.
            return min(len(offsets), pending.end - pending.begin)
        # Order: file and cursor stay, so that a start asks again until the next range is entered, with these entries
        # as expired. It takes their number: their append, if it is still on its way, is refused then.
        # Limit: a producer that the other side forgot (transactions.producer_memory) counts as not stored.
        # Without it the ranges behind it are refused, too: they are entered again. Limit: if those are on their way
        # still, they may be stored twice.
        self._sequence, self._pending, self._may_be_stored = pending.sequence - 1, [], False
        return 0

    def _append_rows(self, rows: pa.RecordBatch, number: tuple[str, int], origin: Origin) -> list[int]:
        began = time.monotonic()
        with self._noting_outcome():
            offsets = self._remote.append_batch(self._target, rows, number, origin)
        self._note_speed(rows.nbytes, began)
        return offsets

    def _note_speed(self, sent: int, began: float) -> None:
        self._max_bytes = bytes_for_link(sent, time.monotonic() - began)

    @contextlib.contextmanager
    def _noting_outcome(self) -> Iterator[None]:
        """Note whether the other side could be reached by an append, and count its refusal."""
        try:
            yield
        except OutOfSequence:
            self.is_away = False
            raise
        except ClientError as error:
            self.is_away = isinstance(error, Unavailable)
            self.statistics.refusals += not self.is_away
            raise
        self.is_away = False

    def _renew_producer(self) -> None:
        """Begin another producer: the other side does not expect the next number of this one."""
        self._producer, self._sequence = uuid.uuid4().hex, 0


class StatisticsPage:
    """The page in which a relay publishes its statistics, for the metrics of this host's daemon."""

    def __init__(self, path: Path) -> None:
        self._page = StatePage(path, RELAY_TEXTS, claim=True)
        self._heartbeat, self._due_at = Heartbeat(), 0.0

    def publish_if_due(self, topics: Sequence[TopicRelay], *, is_connected: bool) -> None:
        """Publish if the interval is over. ``is_connected``: the other side answered the last post of counts."""
        if (now := time.monotonic()) < self._due_at:
            return
        self._due_at = now + PUBLISH_INTERVAL_S
        document = {
            "connected": is_connected and not any(topic.is_away for topic in topics),
            "topics": {topic.name: asdict(topic.statistics) for topic in topics[:MAX_REPORTED_TOPICS]},
        }
        self._page.write(STATISTICS, document | self._heartbeat.beat())


def _time_of(reader: TopicReader, offset: int) -> int:
    """Return when an entry was stored (us); 0 if it is gone or damaged."""
    with contextlib.suppress(CorruptBatch):
        for stored in reader.read(offset, end=offset + 1):
            return stored.last
    return 0


def _entered_rows(pending: RelayPosition) -> int:
    # Compatibility: a position of an earlier version has no rows.
    return pending.rows or pending.end - pending.begin


def _describe(error: Exception) -> str:
    if isinstance(error, CorruptBatch):
        return f"a batch of this host is damaged ({error})"
    return str(error)


def main() -> None:
    """Run the task on standard input until SIGTERM, whose default ends the process: it may be killed at any moment."""
    die_with_parent()
    task = json.load(sys.stdin)
    settings = Settings.model_validate(task["settings"])
    config = next(relay for relay in settings.relay if relay.name == task["relay"])
    configure(f"relay {config.name}")
    folder = Path(settings.data_dir / RELAYS_FOLDER / config.name)
    with starting(f"cannot start the relay to {config.to}"):
        make_folder(folder)
        # Order: the lock before positions are read, because a predecessor may still be ending.
        OS.lock(folder / "lock")
        credentials = Credentials(config, settings)
        local, remote = local_client(settings), remote_client(config)
        registration = Registration(config, settings)
        page = StatisticsPage(relay_state_file(settings.data_dir, config.name))
    while True:
        topics = [TopicRelay(config, topic, settings, local, remote) for topic in config.topic]
        registration.connect(remote)
        # Order: the counts first. The other side then knows what a host had, should its disk be lost now.
        for topic in topics:
            topic.prepare()
        while not credentials.have_changed():
            registration.post_if_due(topics)
            page.publish_if_due(topics, is_connected=registration.is_connected)
            # Every topic has its turn, so that a failing one does not stop the others.
            progress = [topic.relay_once() for topic in topics]
            if not any(progress):
                time.sleep(POLL_INTERVAL_S)
        try:
            renewed = local_client(settings), remote_client(config)
        except (OSError, PenstockError) as error:
            _LOGGER.warning("the renewed token or certificates cannot be used: %s", error)
            continue
        _LOGGER.info("the token or certificates were renewed: connecting again")
        local.close()
        remote.close()
        local, remote = renewed


if __name__ == "__main__":
    main()

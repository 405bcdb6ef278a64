"""The hosts that forward to Kafka: what each says it sent, compared by minute with what landed from there.

Invariant: for each minute of a listener, ``landed = forwarded - in Kafka - missing + surplus``. A shortfall is missing
only if it is certain: the host posted its counts, the ends of all partitions were read after that, and the landing
has reached them. A surplus is doubled only if the host has sent all of that minute, and beyond messages whose
delivery failed, which may be in Kafka all the same.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.counts import BUCKET_SECONDS
from penstock.errors import PenstockError
from penstock.files.checked_document import read_document, write_document
from penstock.files.file_system import OS, make_folder
from penstock.handover.dropped_frames import MAX_BUCKETS
from penstock.ledger.host_posts import HOST_NAME, MAX_LISTENERS, checked_text
from penstock.ledger.hosts import MAX_HOSTS
from penstock.ledger.posts import LARGEST, LAST_SECOND, BadPost

KAFKA_HOST_TIER, ENDS_TIER = "kafka_host", "kafka_ends"
"""Tiers of a host's counts of its handlers, and of the ends of the partitions that the pipeline lands."""
FOLDER = "kafka-hosts"
"""Folder in the data directory, with one file for each host."""
MAX_PARTITIONS = 100_000
"""Limit: partitions in one post of ends."""
MAX_DELAY_MS = 10_000
"""Limit: time that a post of ends takes, which waits 5 s for its answer; its age does not have it."""
MINUTE_OVER_S = 2 * BUCKET_SECONDS
"""Time after the start of a minute at which a host with an empty buffer has sent all of it."""
_COUNTS = ("accepted", "forwarded", "failed", "dropped", "pending")
_BUCKET = re.compile(r"[0-9]{1,12}")
_LOGGER = logging.getLogger(__name__)
Minutes = Mapping[int, tuple[int, int]]
Arrived = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class KafkaReport:
    """Counts of one listener's handler: ``accepted = forwarded + failed + dropped + pending``.

    ``minutes`` are the newest ones with their forwarded and failed messages; the rest of both sums is older.
    """

    accepted: int = 0
    forwarded: int = 0
    failed: int = 0
    dropped: int = 0
    pending: int = 0
    minutes: Minutes = field(default_factory=dict)

    @property
    def has_older(self) -> bool:
        """Report whether the sums have messages that are in none of the minutes."""
        separate = [sum(counts[place] for counts in self.minutes.values()) for place in (0, 1)]
        return separate != [self.forwarded, self.failed]

    def plus(self, addend: KafkaReport) -> KafkaReport:
        """Return the sum of both, with the newest minutes that both have separately."""
        # A minute before the oldest one of a report with older messages may have messages of both, so it is no minute.
        complete_from = max(
            (min(report.minutes, default=0) for report in (self, addend) if report.has_older), default=0
        )
        minutes = dict(self.minutes)
        for minute, (forwarded, failed) in addend.minutes.items():
            before = minutes.get(minute, (0, 0))
            minutes[minute] = (before[0] + forwarded, before[1] + failed)
        separate = sorted(minute for minute in minutes if minute >= complete_from)
        newest = {minute: minutes[minute] for minute in separate[-MAX_BUCKETS:]}
        sums = {name: getattr(self, name) + getattr(addend, name) for name in _COUNTS}
        return KafkaReport(**sums, minutes=newest)


@dataclass(frozen=True, slots=True)
class KafkaPost:
    """The newest post of a host: ``disk`` identifies its data directory, ``process`` and ``version`` order posts."""

    host: str
    disk: str
    process: str
    version: int
    time_ms: int
    software: str
    listeners: Mapping[str, KafkaReport]

    def document(self) -> dict[str, Any]:
        """Return the post as a JSON-ready mapping."""
        return {"tier": KAFKA_HOST_TIER, **asdict(self)}


def parse_kafka_post(document: Any) -> KafkaPost:
    """Parse the document of a host's post. Raises BadPost."""
    try:
        if not HOST_NAME.fullmatch(host := checked_text(document["host"])) or host in (".", ".."):
            raise ValueError(f"{host!a} is no name of a host")
        listeners = document["listeners"]
        if not isinstance(listeners, dict) or len(listeners) > MAX_LISTENERS:
            raise ValueError(f"listeners is no object with at most {MAX_LISTENERS} names")
        return KafkaPost(
            host=host,
            disk=checked_text(document["disk"]),
            process=checked_text(document["process"]),
            version=_count(document["version"]),
            time_ms=_count(document["time_ms"]),
            software=checked_text(document["software"]),
            listeners={checked_text(name): _parse_report(report) for name, report in listeners.items()},
        )
    except (KeyError, TypeError) as error:
        raise BadPost(f"a post of a host needs {error}") from None
    except ValueError as error:
        raise BadPost(f"not a post of a host: {error}") from None


def _parse_report(document: object) -> KafkaReport:
    if not isinstance(document, dict):
        raise ValueError("the counts of a listener are no object")
    minutes = document.get("minutes", {})
    if not isinstance(minutes, dict) or len(minutes) > MAX_BUCKETS:
        raise ValueError(f"minutes is no object with at most {MAX_BUCKETS} names")
    parsed: dict[int, tuple[int, int]] = {}
    for minute, counts in minutes.items():
        if not _BUCKET.fullmatch(str(minute)) or not isinstance(counts, list | tuple) or len(counts) != 2:
            raise ValueError("a minute has its start in seconds and two counts")
        parsed[int(minute)] = (_count(counts[0]), _count(counts[1]))
    sums = {name: _count(document.get(name, 0)) for name in _COUNTS}
    if any(minute > LAST_SECOND or minute % BUCKET_SECONDS for minute in parsed) or any(
        sum(counts[place] for counts in parsed.values()) > sums[name]
        for place, name in enumerate(("forwarded", "failed"))
    ):
        raise ValueError("the minutes have more than their sum, or are no minutes")
    return KafkaReport(**sums, minutes=parsed)


def _count(number: object) -> int:
    if type(number) is not int or not 0 <= number < LARGEST:
        raise ValueError(f"{str(number)[:100]} is no count")
    return number


@dataclass(frozen=True, slots=True)
class OverKafka:
    """A listener of a host that forwards to Kafka, compared with its landed rows.

    ``accepted = forwarded + failed + dropped + pending + lost_with_disk + unposted``, and ``landed + in_kafka + missing
    = forwarded + doubled + failed_landed + unposted``. ``failed_landed`` are landed messages whose delivery was
    reported as failed, ``unposted`` were sent after the newest post of their disk. ``missing_minutes`` and
    ``doubled_minutes`` are the first and the last minute with such a difference (seconds since the epoch); empty if
    there is none, or if it is older than the minutes of a post.
    """

    accepted: int
    forwarded: int
    failed: int
    dropped: int
    pending: int
    lost_with_disk: int
    landed: int
    in_kafka: int
    missing: int
    doubled: int
    failed_landed: int
    unposted: int
    missing_minutes: tuple[int, ...]
    doubled_minutes: tuple[int, ...]
    reported_at: float
    clock_offset_s: float
    version: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The counts of a listener's former disks, and the minutes in which their last messages may have landed."""

    report: KafkaReport
    since: int
    until: int


@dataclass(slots=True)
class KafkaHost:
    """The state of a host: its newest post, its former disks, and, in memory only, the posts that may be settled."""

    post: KafkaPost
    received_ms: int
    closed: dict[str, Closed] = field(default_factory=dict)
    waiting: tuple[int, KafkaPost] | None = None
    """The post whose messages the landing has not reached for certain, and when it was received (ms)."""
    settled: KafkaPost | None = None
    """The newest post whose messages have landed, if they were in Kafka."""

    def settle(self, until_ms: int) -> None:
        """Enter that all messages of posts that were received before ``until_ms`` have landed."""
        if self.waiting and self.waiting[0] < until_ms:
            self.settled, self.waiting = self.waiting[1], None
        if self.received_ms < until_ms:
            self.settled, self.waiting = self.post, None

    def document(self) -> dict[str, Any]:
        """Return the durable state as a JSON-ready mapping."""
        closed = {name: asdict(entry) for name, entry in self.closed.items()}
        return {"post": self.post.document(), "received_ms": self.received_ms, "closed": closed}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> KafkaHost:
        """Return the state in a document. Raises BadPost, AttributeError, KeyError, TypeError and ValueError."""
        closed = {
            checked_text(name): Closed(_parse_report(entry["report"]), int(entry["since"]), int(entry["until"]))
            for name, entry in document["closed"].items()
        }
        return cls(parse_kafka_post(document["post"]), int(document["received_ms"]), closed)


class KafkaHostRegister:
    """The hosts that forward to Kafka. Threads: a lock for each method. Owned by the log daemon.

    ``through`` returns the offset up to which each partition has landed. Crash: a post is stored before it is answered.
    """

    def __init__(self, folder: Path, through: Callable[[], Mapping[str, int]], now: Callable[[], float]) -> None:
        self._folder, self._through, self._now = folder, through, now
        self._lock = threading.Lock()
        self._hosts: dict[str, KafkaHost] = {}
        self._ends: tuple[int, Mapping[str, int]] | None = None
        self._settled_ms = 0
        for path in sorted(folder.glob("*.json")):
            try:
                self._hosts[path.stem] = KafkaHost.from_document(read_document(path))
            except (PenstockError, KeyError, TypeError, ValueError, AttributeError) as error:
                # The host posts its counts again within seconds; only the counts of its former disks are lost.
                path.replace(path.with_suffix(".damaged"))
                _LOGGER.error("the counts of host %s are set aside: %s", path.stem, error)

    def post(self, document: Any) -> bool:
        """Store a host's post; report whether it was new. Raises BadPost and OSError."""
        post = parse_kafka_post(document)
        with self._lock:
            host = self._hosts.get(post.host)
            if host is None and len(self._hosts) >= MAX_HOSTS:
                raise BadPost(f"{MAX_HOSTS} hosts are registered already")
            if host and host.post.process == post.process and host.post.version >= post.version:
                return False
            self._settle()
            entered = _enter(host, post, int(self._now() * 1000))
            make_folder(self._folder)
            write_document(self._folder / f"{post.host}.json", entered.document(), OS)
            self._hosts[post.host] = entered
            return True

    def post_ends(self, document: Mapping[str, Any]) -> bool:
        """Enter the ends of all partitions, which were read at most ``age_ms`` ago. Raises BadPost."""
        ends, age_ms = document.get("ends"), document.get("age_ms")
        if not isinstance(ends, dict) or len(ends) > MAX_PARTITIONS:
            raise BadPost(f"ends is no object with at most {MAX_PARTITIONS} names")
        try:
            read_ms = int(self._now() * 1000) - _count(age_ms) - MAX_DELAY_MS
            numbers = {checked_text(name[-100:]) and name: _count(end) for name, end in ends.items()}
        except ValueError as error:
            raise BadPost(f"not the ends of partitions: {error}") from None
        with self._lock:
            self._settle()
            # Ends that wait are not replaced: with steady traffic newer ones would never be reached.
            if self._ends is None:
                self._ends = read_ms, numbers
            return True

    def _settle(self) -> None:
        if self._ends is not None:
            read_ms, ends = self._ends
            through = self._through()
            if all(through.get(name, 0) >= end for name, end in ends.items()):
                self._settled_ms, self._ends = max(self._settled_ms, read_ms), None
        for host in self._hosts.values():
            host.settle(self._settled_ms)

    def compare(self, arrived: Mapping[str, Arrived], rolled: int = 0) -> dict[tuple[str, str], OverKafka]:
        """Return the listeners of all hosts; ``arrived`` has by HOST/LISTENER the landed messages of each minute.

        Minutes before ``rolled`` are summed by day in ``arrived``.
        """
        with self._lock:
            self._settle()
            return {
                (name, listener): _compare(host, listener, arrived.get(f"{name}/{listener}", {}), rolled)
                for name, host in self._hosts.items()
                for listener in sorted({*host.post.listeners, *host.closed})
            }


def _enter(host: KafkaHost | None, post: KafkaPost, time_ms: int) -> KafkaHost:
    if host is None:
        return KafkaHost(post, time_ms, waiting=(time_ms, post))
    if host.post.disk == post.disk:
        return replace(host, post=post, received_ms=time_ms, waiting=host.waiting or (time_ms, post))
    # A new disk: what was pending on the former one can never arrive, except what was sent after its last post.
    since = host.received_ms // 1000 // BUCKET_SECONDS * BUCKET_SECONDS - MINUTE_OVER_S
    closed = dict(host.closed)
    for name, report in host.post.listeners.items():
        earlier = closed.get(name)
        total = earlier.report.plus(report) if earlier else report
        closed[name] = Closed(total, min(since, earlier.since) if earlier else since, time_ms // 1000)
    return KafkaHost(post, time_ms, closed, waiting=(time_ms, post))


def _compare(host: KafkaHost, listener: str, arrived: Arrived, rolled: int) -> OverKafka:
    closed = host.closed.get(listener)
    report = host.post.listeners.get(listener, KafkaReport())
    total = closed.report.plus(report) if closed else report
    settled = host.settled.listeners.get(listener) if host.settled else None
    certain = (closed.report.plus(settled) if closed else settled) if settled else KafkaReport()
    spans = _spans(total, arrived, rolled)
    # Messages of a minute may still be sent while the host drops newer ones.
    newest = max((minute for minute, counts in total.minutes.items() if any(counts)), default=-1)
    oldest = min((minute for minute in spans if minute >= 0), default=rolled)
    is_idle = not report.pending and host.post.time_ms // 1000 >= newest + MINUTE_OVER_S
    shortfall = doubled = failed_landed = unposted = credited = 0
    doubled_minutes = []
    for minute, (forwarded, failed, landed) in spans.items():
        shortfall += max(forwarded - landed, 0)
        surplus = max(landed - forwarded, 0)
        of_failed = min(surplus, failed)
        failed_landed, surplus = failed_landed + of_failed, surplus - of_failed
        if surplus and closed and _may_be_of_former_disk(closed, minute, oldest):
            credited += surplus
        elif surplus and (minute < newest or (minute == newest and is_idle)):
            doubled += surplus
            doubled_minutes += [minute] if minute >= 0 else []
        else:
            unposted += surplus
    missing_by_minute = {
        minute: forwarded - landed
        for minute, (forwarded, _, landed) in _spans(certain, arrived, rolled).items()
        if forwarded > landed
    }
    missing = min(sum(missing_by_minute.values()), shortfall)
    missing_minutes = sorted(minute for minute in missing_by_minute if minute >= 0)
    pending_there = closed.report.pending if closed else 0
    return OverKafka(
        accepted=total.accepted + max(unposted - report.pending, 0) + max(credited - pending_there, 0),
        forwarded=total.forwarded,
        failed=total.failed,
        dropped=total.dropped,
        # What landed after the newest post was pending in it, as far as it had pending messages.
        pending=max(report.pending - unposted, 0),
        lost_with_disk=max(pending_there - credited, 0),
        landed=sum(arrived.values()),
        in_kafka=shortfall - missing,
        missing=missing,
        doubled=doubled,
        failed_landed=failed_landed,
        unposted=unposted + credited,
        missing_minutes=_first_and_last(missing_minutes),
        doubled_minutes=_first_and_last(sorted(doubled_minutes)),
        reported_at=host.received_ms / 1000,
        clock_offset_s=round((host.post.time_ms - host.received_ms) / 1000, 1),
        version=host.post.software,
    )


def _may_be_of_former_disk(closed: Closed, minute: int, oldest: int) -> bool:
    """Report whether messages that landed in a minute, -1 for all before ``oldest``, may be pending ones of a former
    disk.
    """
    return closed.since < oldest if minute < 0 else closed.since <= minute <= closed.until


def _spans(report: KafkaReport, arrived: Arrived, rolled: int) -> dict[int, tuple[int, int, int]]:
    """Return forwarded, failed and landed messages by minute; -1 is the time before the minutes of the report."""
    minutes = {minute: counts for minute, counts in report.minutes.items() if minute >= rolled}
    oldest = min(minutes, default=rolled)
    older = sum(landed for minute, landed in arrived.items() if minute < oldest)
    forwarded, failed = (sum(counts[place] for counts in minutes.values()) for place in (0, 1))
    spans = {-1: (report.forwarded - forwarded, report.failed - failed, older)}
    for minute in {*minutes, *(minute for minute in arrived if minute >= oldest)}:
        spans[minute] = (*minutes.get(minute, (0, 0)), arrived.get(minute, 0))
    return spans


def _first_and_last(minutes: list[int]) -> tuple[int, ...]:
    return (minutes[0], minutes[-1]) if minutes else ()

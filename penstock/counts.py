"""The vocabulary of the balance: what is counted, under which name, for which bucket.

Every stage counts with these names and no others. The equations between them (datagram book, line book, message book)
are the rules of the balance, which ``open_books`` checks.

Invariant: counts are additive, so that batches, buckets and incarnations can be summed in any order. Therefore what is
*open* (fragments and messages that wait for missing parts) is counted as a difference.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

BUCKET_SECONDS = 60
TIERS = ("client", "kernel", "received", "buffered", "logged", "landed")
"""The product's own tiers."""
SourceBucket = tuple[str, int]
"""A source (a listener, ``grpc``, ``http``, ...) and the start of a bucket, in seconds since the epoch."""
AUDIT_TIER = r"[a-z][a-z0-9_.-]{0,63}"
"""Pattern of the tier of a Kafka auditor; TIERS are not permitted."""


class Name(StrEnum):
    """Names of counts. A name that ends in a dot is completed by a reason."""

    # Datagram book: taken = unboxed + command + empty + invalid.* + fragment.*
    TAKEN = "taken"
    UNBOXED = "unboxed"
    COMMAND = "command"
    EMPTY = "empty"
    INVALID = "invalid."  # version | type | header | unknown_command | command_refused | network | slot
    FRAGMENT_USED = "fragment.used"
    FRAGMENT_DUPLICATE = "fragment.duplicate"
    FRAGMENT_INVALID = "fragment.invalid"
    FRAGMENT_DISCARDED = "fragment.discarded"
    FRAGMENT_OPEN = "fragment.open"  # a difference: may be negative
    KERNEL_DROPPED = "kernel_dropped"  # shown, not a term
    # Line book (TCP): lines = line.message + line.command + line.empty + line.joined + line.overlong
    # + line.evicted
    LINES = "lines"
    LINE_MESSAGE = "line.message"
    LINE_COMMAND = "line.command"
    LINE_EMPTY = "line.empty"
    LINE_JOINED = "line.joined"  # not the first of its message (multiline)
    LINE_OVERLONG = "line.overlong"
    LINE_EVICTED = "line.evicted"  # dropped unfinished, at a limit of memory or connections
    SKIPPED_BYTES = "skipped_bytes"  # of overlong lines; bytes, not a term
    CONNECTION_CLOSED = (
        "connection_closed."  # limit | idle | network | tls | name | protocol | key | left; shown, not a term
    )
    REQUEST = "request_refused."  # by reason: requests refused as a whole; shown, not a term
    # Message book: seen = accepted + incomplete.* + bad_checksum + refused.* + open
    SEEN = "seen"
    ACCEPTED = "accepted"
    INCOMPLETE = "incomplete."  # expired | evicted | replaced | crash
    BAD_CHECKSUM = "bad_checksum"
    REFUSED = "refused."  # oversize | compressed | damaged | syntax | kind
    OPEN = "open"  # a difference: may be negative
    # Annotations about senders, not terms
    HOLE = "hole"
    JUMP = "jump"
    REQUEST_REFUSED = "kt_refused"  # a requested topic that was refused: the message went to the handler's own topic
    UNVERIFIED = "unverified"  # accepted from the slots of a killed receiver, without a checksum
    # Route: accepted = delivered + policy_drop.* + handler_failed.* + corrupt + in the log buffer
    POLICY_DROP = "policy_drop."  # by handler
    HANDLER_FAILED = "handler_failed."  # by handler
    NOT_ROUTED = "not_routed."  # by handler: messages for other handlers only
    CORRUPT = "corrupt"  # in frames of the log buffer that could not be read
    # Landing: logged = landed.* + quarantined.* + deleted.* + duplicate + transformed.dropped + segment + promoted
    # + passed_over + not_a_message.* + compacted + gap.* + pending
    LANDED = "landed."  # event | syslog | message
    QUARANTINED = "quarantined."  # by reason
    DUPLICATE = "duplicate"
    DROPPED = "transformed.dropped"
    REDACTED = "transformed.redacted"  # changed before it landed; shown, not a term
    SEGMENT = "segment"  # a record of Kafka that is a chunk of a large message
    PROMOTED = "promoted"  # copied to Kafka before it landed; the book of a partition of Kafka continues with it
    PASSED_OVER = "passed_over"  # in Kafka from before the pipeline switched to it
    DELETED = "deleted."  # asked | retention | foreign: removed from landed or quarantined rows
    NOT_A_MESSAGE = "not_a_message."  # control | aborted: offsets of Kafka without a message for readers
    COMPACTED = "compacted"  # records that Kafka's log cleaner removed because a later record has their key
    GAP = "gap."  # corrupt | expired_read | expired_unread | deleted; Kafka: expired_before | absent


class Counts(Counter[str]):
    """Counts by name: additive, never with zeros once ``pruned``."""

    def pruned(self) -> dict[str, int]:
        """Return the counts that are not zero as a plain mapping for JSON."""
        return {str(name): count for name, count in self.items() if count}

    def total(self, prefix: str = "") -> int:
        """Return the sum of all counts whose name starts with ``prefix``."""
        return sum(count for name, count in self.items() if name.startswith(prefix))

    def rows(self) -> int:
        """Return the sum of the counts in which each message appears once; redacted ones have another count, too."""
        # Fast path: a balance needs it for each minute of each listener, and `get` calls no `__missing__`.
        return sum(self.values()) - self.get(Name.REDACTED, 0)

    def absorb(self, more: Mapping[str, int]) -> None:
        """Add ``more`` in place, with differences, which ``+=`` of a Counter would drop."""
        for name, count in more.items():
            self[name] += count


LOST_BEFORE = (
    Name.KERNEL_DROPPED,
    Name.INVALID,
    Name.LINE_OVERLONG,
    Name.LINE_EVICTED,
    Name.INCOMPLETE,
    Name.BAD_CHECKSUM,
    Name.REFUSED,
)
"""Losses before acceptance. A name that ends in a dot is a prefix."""
LOST_GAPS = tuple(f"{Name.GAP}{reason}" for reason in ("expired_unread", "corrupt"))
"""Gaps that are losses; an operator's deletion of a topic and expiry after reading are not (docs/accounting.md, 13)."""
LOST = (*LOST_BEFORE, Name.POLICY_DROP, Name.HANDLER_FAILED, Name.CORRUPT, *LOST_GAPS)
"""Prefixes of the names of all losses."""
WITHOUT_MESSAGE = (Name.NOT_A_MESSAGE, Name.COMPACTED, f"{Name.GAP}expired_before", f"{Name.GAP}absent")
"""Fates of Kafka's offsets that show no message to any reader: not lost, and no term of the receipt."""
EXPIRED_READ = f"{Name.GAP}expired_read"
GAP_DELETED = f"{Name.GAP}deleted"


def lost(counts: Mapping[str, int]) -> Counts:
    """Return the losses in ``counts`` by name: the only definition of *lost* (docs/accounting.md, section 13)."""
    return Counts({name: count for name, count in counts.items() if count and name.startswith(LOST)})


def fate_of_gap(reason: str) -> str:
    """Return the count of a gap with this reason; Kafka's offsets without a message have names of their own."""
    return reason if reason.startswith((Name.NOT_A_MESSAGE, Name.COMPACTED)) else f"{Name.GAP}{reason}"


def summed(mappings: Iterable[Mapping[str, int]]) -> Counts:
    """Return the sum of many counts."""
    total: dict[str, int] = {}  # Fast path: faster than Counts, for the minutes of a year
    current = total.get
    for counts in mappings:
        for name, count in counts.items():
            total[name] = current(name, 0) + count
    return Counts(total)


@dataclass(frozen=True, slots=True)
class OpenBook:
    """A book whose two sides differ."""

    book: str
    left: int
    right: int


def open_books(counts: Counts) -> list[OpenBook]:
    """Return the books of a listener that do not close; an empty list when all close."""
    n = Name
    datagrams = counts[n.UNBOXED] + counts[n.COMMAND] + counts[n.EMPTY] + counts.total(n.INVALID)
    sides = {
        "datagrams": (counts[n.TAKEN], datagrams + counts.total("fragment.")),
        "lines": (counts[n.LINES], counts.total("line.")),
        "messages": (
            counts[n.SEEN],
            counts[n.ACCEPTED]
            + counts.total(n.INCOMPLETE)
            + counts[n.BAD_CHECKSUM]
            + counts.total(n.REFUSED)
            + counts[n.OPEN],
        ),
    }
    return [OpenBook(book, left, right) for book, (left, right) in sides.items() if left != right]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a batch. It travels with the batch, and no later stage reads a clock for it.

    ``bucket`` is the start of its minute in seconds since the epoch; ``first`` and ``last`` are receive times in
    microseconds. ``begin`` and ``end`` bound its frames in log buffer ``buffer`` (stream positions, end exclusive), and
    ``total`` is the listener's total of messages after them; it is 0 if the counts of the frames are in another batch.
    For a batch that entered by an API all three are 0 and ``buffer`` is empty. ``hops`` are the topics in which relayed
    rows were before, each INSTANCE/TOPIC, the first one first.
    """

    source: str
    bucket: int
    first: int
    last: int
    codec: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    buffer: str = ""
    begin: int = 0
    end: int = 0
    hops: tuple[str, ...] = ()
    total: int = 0

    @property
    def shared(self) -> tuple[str, int, str, tuple[str, ...]]:
        """The fields that are equal in all batches of one join: source, bucket, codec and hops."""
        return self.source, self.bucket, self.codec, self.hops

    def document(self) -> dict[str, Any]:
        """Return a mapping for JSON without empty fields."""
        full: dict[str, Any] = {
            "source": self.source,
            "bucket": self.bucket,
            "first": self.first,
            "last": self.last,
            "codec": self.codec,
            "counts": {str(k): v for k, v in self.counts.items() if v},
            "buffer": self.buffer,
            "begin": self.begin,
            "end": self.end,
            "hops": self.hops,
            "total": self.total,
        }
        return {k: v for k, v in full.items() if v or k in ("source", "bucket", "first", "last")}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Origin:
        """Return the origin of a document; unknown entries are ignored. Raises KeyError for a missing entry."""
        return cls(
            source=str(document["source"]),
            bucket=int(document["bucket"]),
            first=int(document["first"]),
            last=int(document["last"]),
            codec=str(document.get("codec", "")),
            counts=Counts(document.get("counts", {})),
            buffer=str(document.get("buffer", "")),
            begin=int(document.get("begin", 0)),
            end=int(document.get("end", 0)),
            hops=tuple(map(str, document.get("hops", ()))),
            total=int(document.get("total", 0)),
        )


TOTAL = "#total"
"""End of the name of a log buffer's total of messages among the stored positions."""
SERIES_END = "~"
"""Separates series and epoch in the name of a log buffer; no listener has it in its name."""


def series_of(buffer: str) -> str:
    """Return the name of the series in which a log buffer (or epoch) counts messages; its epochs continue one total.

    A listener whose files were gone counts from 0 in another series.
    """
    return buffer.partition(SERIES_END)[0]


def advance_positions(positions: dict[str, int], origin: Origin) -> None:
    """Enter a stored batch: the position in its log buffer under the buffer's name, the total under that and TOTAL."""
    if origin.buffer:
        positions[origin.buffer] = max(origin.end, positions.get(origin.buffer, 0))
        if origin.total:
            key = f"{origin.buffer}{TOTAL}"
            positions[key] = max(origin.total, positions.get(key, 0))


MAX_CORRECTION = 0.01
"""Limit of the correction: 10 ms per second, so that a jump of an hour takes four days and moves no bucket far."""


class BucketClock:
    """The receiver's clock: the wall clock at the start, advanced by the monotonic clock and corrected slowly.

    Therefore a jump of the wall clock moves no bucket far, and buckets never decrease. Owned by one thread.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic, bucket: int = 0
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._base = wall()
        self._started = self._read = monotonic()
        self._bucket = bucket

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        monotonic = self._monotonic()
        max_step = (monotonic - self._read) * MAX_CORRECTION
        error = self._wall() - (self._base + monotonic - self._started)
        self._base += min(max(error, -max_step), max_step)
        self._read = monotonic
        return self._base + monotonic - self._started

    def stamp(self) -> tuple[int, int]:
        """Return the bucket (start of the minute, seconds) and the time (microseconds since the epoch) of a round."""
        now = self.now()
        self._bucket = max(self._bucket, bucket_of(now))
        return self._bucket, int(now * 1_000_000)


def bucket_of(seconds: float) -> int:
    """Return the bucket of a time: the start of its minute, in seconds since the epoch."""
    return math.floor(seconds / BUCKET_SECONDS) * BUCKET_SECONDS


def prefix_with_bucket(bucket: int, counts: Mapping[str, int]) -> dict[str, int]:
    """Return ``counts`` of another bucket under names (``60@accepted``) for the counts of a batch."""
    return {f"{bucket}@{name}": count for name, count in counts.items()}


def by_bucket(bucket: int, counts: Mapping[str, int]) -> dict[int, Counts]:
    """Split a batch's counts by bucket: its own one, and those named by ``prefix_with_bucket``."""
    counts_of_bucket: dict[int, Counts] = {}
    for name, count in counts.items():
        other_bucket, separator, plain_name = name.rpartition("@")
        counts_of_bucket.setdefault(int(other_bucket) if separator else bucket, Counts())[plain_name] += count
    return counts_of_bucket

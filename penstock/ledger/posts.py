"""Posts: what other stages report to the ledger, stored in the internal topic ``_ledger``.

Five tiers post: ``landed`` (the pipeline: the proved fates of a committed range of offsets), ``client`` (senders that
count), auditors of Kafka clients under a tier name of their own (``kafka``), ``senders`` (the senders of
a listener, hourly), and ``event`` (the timeline).

Invariant: posts carry absolute counts, so a repeated post changes nothing. Of a landed range only the part beyond
earlier ranges counts; of a sender's posts, of an event and of each minute of an auditor the highest version counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from penstock.counts import AUDIT_TIER, TIERS, Counts, SourceBucket
from penstock.errors import PenstockError

CANNOT_START = "cannot start"
"""Begin of the cause of a ``restart`` whose process ends at each start, with the reason."""
NO_UUIDS: Mapping[SourceBucket, Counts] = MappingProxyType({})
EVENT = "event"
"""Tier of the timeline."""
ROWS, SUM = "rows.", "sum."
"""Prefixes of the names in a post's ``uuids``; the fate follows."""
LARGEST = 1 << 64
"""Exclusive bound of a count: counts are unsigned 64-bit numbers."""
MAX_HASH_SUM = 1 << 128
"""Inclusive bound of a sum of 64-bit hashes."""
LAST_SECOND = 253_402_300_799
"""End of the year 9999, the last date that Python can show."""
LONGEST_SHOWN = 100
MAX_POSTED = 1_000
"""Limit: senders of one post."""
LONGEST_NAME = 1_024
"""Limit for the characters of a source, an incarnation or a topic: posts are stored forever."""


class BadPost(PenstockError, ValueError):
    """A post that cannot be parsed or cannot be true."""


class LacksPosts(PenstockError, RuntimeError):
    """The ledger has lost earlier posts of the topic: all must be posted again, in order."""


@dataclass(frozen=True, slots=True)
class LandedPost:
    """The fates of the offsets of a topic up to ``through`` (exclusive) that no earlier post covered.

    ``topic`` may be a partition of Kafka (``events/0``); then only the post knows its ``end``. ``uuids`` has by fate
    the number of known uuids (``rows.FATE``) and the sum of their hashes (``sum.FATE``). With ``backfill``, the number
    of a backfill request, the post covers offsets that landed out of turn: the ranges ``ahead``. With ``deletion``,
    the number of a deletion, it moves rows that earlier posts counted: ``taken`` and ``taken_uuids`` are subtracted,
    ``counts`` and ``uuids`` are added. ``after`` is the offset up to which the caller has posted before; it is not
    stored.
    """

    topic: str
    version: int
    through: int
    counts: dict[SourceBucket, Counts]
    end: int = 0
    uuids: dict[SourceBucket, Counts] = field(default_factory=dict)
    backfill: int = 0
    ahead: tuple[tuple[int, int], ...] = ()
    deletion: int = 0
    taken: dict[SourceBucket, Counts] = field(default_factory=dict)
    taken_uuids: dict[SourceBucket, Counts] = field(default_factory=dict)
    after: int = 0


@dataclass(frozen=True, slots=True)
class ClientPost:
    """The totals that one sender has sent to a listener: ``datagrams`` or ``lines``, and ``messages``."""

    listener: str
    sender: str
    version: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class AuditPost:
    """The counts of one incarnation of a Kafka client, by topic and bucket (seconds since the epoch)."""

    tier: str
    source: str
    incarnation: str
    version: int
    counts: dict[SourceBucket, Counts]


LOSSES = "lost"
"""Key of an event's losses in its document."""
DISK = "disk"
"""Kind of the event of a time in which the log refuses appends for lack of space."""
LANDING = "landing"
"""Kind of the event of a time in which the pipeline fails."""
EVENT_KINDS = ("start", "stop", "restart", "stopped", "reload", DISK, LANDING, "retention", "clock", "loss", "foreign")


@dataclass(frozen=True, slots=True)
class EventPost:
    """An incident of ``what`` (a process or a place) from ``at`` to ``until`` (milliseconds since the epoch).

    ``until`` is 0 while the incident lasts, and equal to ``at`` if it takes no time. ``losses`` are the losses
    in ``place`` (a listener or topic) by name; ``during`` is the id of the incident that caused them, or empty.
    """

    id: str
    version: int
    kind: str
    at: int
    until: int = 0
    what: str = ""
    cause: str = ""
    place: str = ""
    during: str = ""
    losses: Counts = field(default_factory=Counts)

    def document(self) -> dict[str, Any]:
        """Return the event as a JSON-ready mapping."""
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        columns[LOSSES] = columns.pop("losses")
        return {"tier": EVENT, **columns}


@dataclass(frozen=True, slots=True)
class SenderTotals:
    """Counts of one sender; first and last arrival in microseconds since the epoch."""

    first: int
    last: int
    counts: Counts

    @property
    def size(self) -> int:
        """The number of messages and losses."""
        return sum(self.counts.values())

    def plus(self, addend: SenderTotals) -> SenderTotals:
        """Return the sum of both."""
        counts = Counts(self.counts)
        counts.absorb(addend.counts)
        first = min(self.first, addend.first) if self.first and addend.first else self.first or addend.first
        return SenderTotals(first, max(self.last, addend.last), counts)


Totals = dict[str, SenderTotals]
"""Senders by name."""


@dataclass(frozen=True, slots=True)
class SenderPost:
    """Totals of changed senders in one table of a listener; removed ones have ``first`` 0."""

    listener: str
    table: str
    version: int
    senders: Totals


SENDERS = "senders"
"""Tier of counts by sender."""
Post = LandedPost | ClientPost | AuditPost | EventPost | SenderPost


def parse(document: Any) -> Post:
    """Parse the JSON document of a post. Raises BadPost."""
    if not isinstance(document, dict):
        raise BadPost("not a post: an object is needed")
    try:
        tier = document["tier"]
        if tier == "landed":
            return _parse_landed(document)
        if tier == "client":
            counts = _parse_counts(document["counts"])
            return ClientPost(_text(document["listener"]), _text(document["sender"]), _version(document), counts)
        if tier == SENDERS:
            return _parse_senders(document)
        if tier == EVENT:
            return _parse_event(document)
        if "incarnation" in document:
            return _parse_audit(tier, document)
    except KeyError as error:
        raise BadPost(f"a post of this tier needs {error.args[0]!r}") from None
    except ValueError as error:
        raise BadPost(f"not a post: {error}") from None
    raise BadPost(f"unknown tier {_shorten(tier)}: known are landed, client, senders, event, and those of auditors")


def _parse_event(document: Any) -> EventPost:
    if (kind := _text(document["kind"])) not in EVENT_KINDS:
        raise BadPost(f"unknown kind of event {_shorten(kind)}: known are {', '.join(EVENT_KINDS)}")
    begin_ms, end_ms = (_natural(document.get(name, 0), LAST_SECOND * 1000) for name in ("at", "until"))
    names = {name: _name(document.get(name, "")) for name in ("what", "cause", "place", "during")}
    losses = _parse_counts(document.get(LOSSES, {}))
    return EventPost(_name(document["id"]), _version(document), kind, begin_ms, end_ms, **names, losses=losses)


def _parse_senders(document: Any) -> SenderPost:
    senders = _object(document[SENDERS])
    if len(senders) > MAX_POSTED:
        raise ValueError(f"{len(senders)} senders are more than {MAX_POSTED}")
    totals = {_name(name): _parse_totals(_object(sender)) for name, sender in senders.items()}
    table = _name(document["table"])
    # Without a name are the sums of tables that are gone.
    if not table:
        raise ValueError("a table needs a name")
    return SenderPost(_name(document["listener"]), table, _version(document), totals)


def _parse_totals(sender: dict[str, Any]) -> SenderTotals:
    # Late messages fill holes, so the number of holes of a file that lost some may be below 0 for a while.
    counts = {_text(name): _parse_signed(count) for name, count in _object(sender["counts"]).items()}
    return SenderTotals(_natural(sender["first"]), _natural(sender["last"]), Counts(counts))


def _parse_landed(document: Any) -> LandedPost:
    through = _natural(document["through"])
    end = _natural(document.get("end", 0))
    uuids, taken, taken_uuids = (
        {key: counts for key, counts in _counts_by_bucket(document, field_name=name).items() if counts}
        for name in ("uuids", "taken", "taken_uuids")
    )
    ahead = tuple(_range(bounds) for bounds in _list(document.get("ahead", [])))
    backfill, deletion, after = (_natural(document.get(name, 0)) for name in ("refill", "deletion", "after"))
    topic, version, counts = _text(document["topic"]), _version(document), _counts_by_bucket(document)
    # Invariant: a deletion moves rows between fates. If it added or removed rows, the balance would not close.
    if deletion and any(counts[key].total() != taken.get(key, Counts()).total() for key in {*counts, *taken}):
        raise ValueError("a deletion takes as many rows from one count as it adds to another")
    return LandedPost(topic, version, through, counts, end, uuids, backfill, ahead, deletion, taken, taken_uuids, after)


def _parse_audit(tier: Any, document: Any) -> AuditPost:
    if not isinstance(tier, str) or not re.fullmatch(AUDIT_TIER, tier) or tier in TIERS:
        raise BadPost(f"an auditor's tier matches {AUDIT_TIER} and is none of {', '.join(TIERS)}: {_shorten(tier)}")
    names = _name(document["source"]), _name(document["incarnation"])
    return AuditPost(tier, *names, _version(document), _counts_by_bucket(document, "topic"))


def _counts_by_bucket(document: Any, origin: str = "source", field_name: str = "counts") -> dict[SourceBucket, Counts]:
    counts: dict[SourceBucket, Counts] = {}
    for entry in map(_object, _list(document["counts"])):
        origin_bucket = (_name(entry[origin]), _natural(entry["bucket"], LAST_SECOND))
        totals = counts.setdefault(origin_bucket, Counts())
        totals.absorb(_parse_counts(entry[field_name] if field_name == "counts" else entry.get(field_name, {})))
    return counts


def _parse_counts(counts: object) -> Counts:
    return Counts({_text(name): _natural(count, _largest_count(name)) for name, count in _object(counts).items()})


def _largest_count(name: str) -> int:
    # Limit: a sum of hashes grows with the number of uuids, so it gets a wider bound than a count.
    return MAX_HASH_SUM if name.startswith(SUM) else LARGEST - 1


def dump(post: Post) -> bytes:
    """Serialize a post for ``_ledger``."""
    if isinstance(post, ClientPost):
        document: dict[str, Any] = {
            "tier": "client",
            "listener": post.listener,
            "sender": post.sender,
            "version": post.version,
            "counts": post.counts.pruned(),
        }
    elif isinstance(post, SenderPost):
        document = {
            "tier": SENDERS,
            "listener": post.listener,
            "table": post.table,
            "version": post.version,
            SENDERS: {
                name: {"first": sender.first, "last": sender.last, "counts": sender.counts.pruned()}
                for name, sender in post.senders.items()
            },
        }
    elif isinstance(post, EventPost):
        document = {name: value for name, value in post.document().items() if value or name in ("version", "at")}
    elif isinstance(post, AuditPost):
        document = {
            "tier": post.tier,
            "source": post.source,
            "incarnation": post.incarnation,
            "version": post.version,
            "counts": _entries(post.counts, "topic"),
        }
    else:
        document = {
            "tier": "landed",
            "topic": post.topic,
            "version": post.version,
            "through": post.through,
            **({"end": post.end} if post.end else {}),
            **({"refill": post.backfill, "ahead": post.ahead} if post.backfill else {}),
            **({"deletion": post.deletion} if post.deletion else {}),
            "counts": _entries(post.counts, "source", post.uuids, taken=post.taken, taken_uuids=post.taken_uuids),
        }
    return json.dumps(document, separators=(",", ":")).encode()


def _entries(
    counts: dict[SourceBucket, Counts],
    origin: str,
    uuids: Mapping[SourceBucket, Counts] = NO_UUIDS,
    **further: Mapping[SourceBucket, Counts],
) -> list[dict[str, Any]]:
    further = {"uuids": uuids, **further}
    return [
        {origin: key[0], "bucket": key[1], "counts": totals.pruned()}
        | {name: counts_by_key[key].pruned() for name, counts_by_key in further.items() if key in counts_by_key}
        for key, totals in counts.items()
    ]


def _name(value: object) -> str:
    name = _text(value)
    if len(name) > LONGEST_NAME:
        raise ValueError(f"a name of {len(name)} characters is more than {LONGEST_NAME}")
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shorten(value)} is not a text")
    # A lone surrogate would make each answer with this text, also of stored posts, one that cannot be encoded.
    return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _natural(value: object, largest: int = LARGEST - 1) -> int:
    # JSON's ``true`` is an ``int`` in Python.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise ValueError(f"{_shorten(value)} is not a count")
    return value


def _parse_signed(value: object) -> int:
    if isinstance(value, int) and value < 0:
        return -_natural(-value)
    return _natural(value)


def _version(document: Mapping[str, Any]) -> int:
    return _natural(document["version"])


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{_shorten(value)} is not an object")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{_shorten(value)} is not a list")
    return list(value)


def _range(value: object) -> tuple[int, int]:
    begin, end = map(_natural, both) if len(both := _list(value)) == 2 else (1, 0)
    if begin > end:
        raise ValueError(f"{_shorten(value)} is not a range of offsets")
    return begin, end


def _shorten(value: object) -> str:
    # Limit: an error quotes at most this much of what a sender posted.
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."

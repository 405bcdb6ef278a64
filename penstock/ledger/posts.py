"""Posts: what other stages tell the ledger, kept in the internal topic ``_ledger``.

Four tiers post: ``landed`` (the pipeline: what became of a committed range of a topic's offsets, proved),
``client`` (senders that count), those of auditors of Kafka clients, which name their tier themselves (``kafka``), and
``event`` (the timeline: what happened when). Posts carry absolute counts, so that one that comes twice changes nothing:
of a landed range only what lies beyond the ranges before it is taken, of a sender's posts and of an event the highest
version, of an auditor's posts the highest version of each minute.
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

NO_UUIDS: Mapping[SourceBucket, Counts] = MappingProxyType({})
EVENT = "event"
"""The tier of what happened."""
ROWS, SUM = "rows.", "sum."
"""What the names of a post's ``uuids`` begin with; the fate follows."""
LARGEST = 1 << 64
"""What a number stays below."""
LARGEST_SUM = 1 << 128
"""What a sum of 64-bit hashes is at most."""
LAST_SECOND = 253_402_300_799
"""Of the year 9999."""
LONGEST_SHOWN = 100
LONGEST_NAME = 1_024
"""Characters of a source, an incarnation or a topic at most: they are kept for ever."""


class BadPost(PenstockError, ValueError):
    """A post that cannot be understood; the text says why."""


@dataclass(frozen=True, slots=True)
class LandedPost:
    """The fates of the offsets up to ``through`` (exclusive) of a topic that no post before told.

    ``topic`` may be a partition of Kafka (``events/0``), of which only the post knows the ``end``.
    ``uuids``: by fate how many uuids are known (``rows.FATE``) and the sum of their hashes (``sum.FATE``). With
    ``refill``, the number of a request, it tells of offsets that landed out of turn: those in ``ahead`` no other post
    tells of. With ``deletion``, the number of one, it tells of rows that were taken out of the table: ``counts`` and
    ``uuids`` are what they are now, ``taken`` and ``taken_uuids`` what posts before had told of them.
    """

    topic: str
    version: int
    through: int
    counts: dict[SourceBucket, Counts]
    end: int = 0
    uuids: dict[SourceBucket, Counts] = field(default_factory=dict)
    refill: int = 0
    ahead: tuple[tuple[int, int], ...] = ()
    deletion: int = 0
    taken: dict[SourceBucket, Counts] = field(default_factory=dict)
    taken_uuids: dict[SourceBucket, Counts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientPost:
    """What one sender has sent to a listener up to now: ``datagrams`` or ``lines``, and ``messages``."""

    listener: str
    sender: str
    version: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class AuditPost:
    """What one life (``incarnation``) of a Kafka client has counted, by topic and bucket (seconds since the epoch)."""

    tier: str
    source: str
    incarnation: str
    version: int
    counts: dict[SourceBucket, Counts]


EVENT_KINDS = ("start", "stop", "restart", "reload", "disk", "retention", "clock", "loss")


@dataclass(frozen=True, slots=True)
class EventPost:
    """Something that happened to ``what`` (a process, a place), from ``at`` ``until`` (milliseconds since the epoch).

    ``until`` is 0 while it lasts; the same as ``at`` for what lasts no time. ``lost``: what was lost in ``place`` (a
    listener or topic) by name, ``during`` the event of that id, "" where it is an event of its own.
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
    lost: Counts = field(default_factory=Counts)

    def document(self) -> dict[str, Any]:
        """As JSON-ready mapping."""
        return {"tier": EVENT, **{one.name: getattr(self, one.name) for one in fields(self)}}


Post = LandedPost | ClientPost | AuditPost | EventPost


def parse(document: Any) -> Post:
    """The post of a JSON document. Raises BadPost."""
    if not isinstance(document, dict):
        raise BadPost("not a post: an object is needed")
    try:
        tier = document["tier"]
        if tier == "landed":
            return _landed(document)
        if tier == "client":
            counts = _told(document["counts"])
            return ClientPost(_text(document["listener"]), _text(document["sender"]), _version(document), counts)
        if tier == EVENT:
            return _event(document)
        if "incarnation" in document:
            return _audited(tier, document)
    except KeyError as error:
        raise BadPost(f"a post of this tier needs {error.args[0]!r}") from None
    except ValueError as error:
        raise BadPost(f"not a post: {error}") from None
    raise BadPost(f"unknown tier {_shown(tier)}: known are landed, client, event, and those of auditors")


def _event(document: Any) -> EventPost:
    if (kind := _text(document["kind"])) not in EVENT_KINDS:
        raise BadPost(f"unknown kind of event {_shown(kind)}: known are {', '.join(EVENT_KINDS)}")
    at, until = (_natural(document.get(name, 0), LAST_SECOND * 1000) for name in ("at", "until"))
    names = {name: _name(document.get(name, "")) for name in ("what", "cause", "place", "during")}
    lost = _told(document.get("lost", {}))
    return EventPost(_name(document["id"]), _version(document), kind, at, until, **names, lost=lost)


def _landed(document: Any) -> LandedPost:
    through = _natural(document["through"])
    end = _natural(document.get("end", 0))
    uuids, taken, taken_uuids = (
        {key: counts for key, counts in _counts(document, named=name).items() if counts}
        for name in ("uuids", "taken", "taken_uuids")
    )
    ahead = tuple(_range(one) for one in _list(document.get("ahead", [])))
    refill, deletion = (_natural(document.get(name, 0)) for name in ("refill", "deletion"))
    topic, version, counts = _text(document["topic"]), _version(document), _counts(document)
    if deletion and any(counts[key].total() != taken.get(key, Counts()).total() for key in {*counts, *taken}):
        raise ValueError("a deletion takes as many rows from one count as it adds to another")
    return LandedPost(topic, version, through, counts, end, uuids, refill, ahead, deletion, taken, taken_uuids)


def _audited(tier: Any, document: Any) -> AuditPost:
    if not isinstance(tier, str) or not re.fullmatch(AUDIT_TIER, tier) or tier in TIERS:
        raise BadPost(f"an auditor's tier matches {AUDIT_TIER} and is none of {', '.join(TIERS)}: {_shown(tier)}")
    names = _name(document["source"]), _name(document["incarnation"])
    return AuditPost(tier, *names, _version(document), _counts(document, "topic"))


def is_partition(topic: str) -> bool:
    """Whether it is a partition of Kafka and no topic of the log."""
    return "/" in topic


def _counts(document: Any, of: str = "source", named: str = "counts") -> dict[SourceBucket, Counts]:
    counts: dict[SourceBucket, Counts] = {}
    for entry in map(_object, _list(document["counts"])):
        key = (_name(entry[of]), _natural(entry["bucket"], LAST_SECOND))
        of_key = counts.setdefault(key, Counts())
        of_key.absorb(_told(entry[named] if named == "counts" else entry.get(named, {})))
    return counts


def _told(value: object) -> Counts:
    return Counts({_text(name): _natural(count, _most(name)) for name, count in _object(value).items()})


def _most(name: str) -> int:
    """Sums of 64-bit hashes grow with what is summed."""
    return LARGEST_SUM if name.startswith(SUM) else LARGEST - 1


def dump(post: Post) -> bytes:
    """The post as it is kept."""
    if isinstance(post, ClientPost):
        document: dict[str, Any] = {
            "tier": "client",
            "listener": post.listener,
            "sender": post.sender,
            "version": post.version,
            "counts": post.counts.pruned(),
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
            **({"refill": post.refill, "ahead": post.ahead} if post.refill else {}),
            **({"deletion": post.deletion} if post.deletion else {}),
            "counts": _entries(post.counts, "source", post.uuids, taken=post.taken, taken_uuids=post.taken_uuids),
        }
    return json.dumps(document, separators=(",", ":")).encode()


def _entries(
    counts: dict[SourceBucket, Counts],
    of: str,
    uuids: Mapping[SourceBucket, Counts] = NO_UUIDS,
    **more: Mapping[SourceBucket, Counts],
) -> list[dict[str, Any]]:
    more = {"uuids": uuids, **more}
    return [
        {of: key[0], "bucket": key[1], "counts": of_key.pruned()}
        | {name: told[key].pruned() for name, told in more.items() if key in told}
        for key, of_key in counts.items()
    ]


def _name(value: object) -> str:
    name = _text(value)
    if len(name) > LONGEST_NAME:
        raise ValueError(f"a name of {len(name)} characters is more than {LONGEST_NAME}")
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a text")
    return value


def _natural(value: object, largest: int = LARGEST - 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise ValueError(f"{_shown(value)} is not a count")
    return value


def _version(document: Mapping[str, Any]) -> int:
    return _natural(document["version"])


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is not an object")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{_shown(value)} is not a list")
    return list(value)


def _range(value: object) -> tuple[int, int]:
    begin, end = map(_natural, both) if len(both := _list(value)) == 2 else (1, 0)
    if begin > end:
        raise ValueError(f"{_shown(value)} is no range of offsets")
    return begin, end


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."

"""Posts: what other stages tell the ledger, kept in the internal topic ``_ledger``.

Two tiers post: ``landed`` (the pipeline: what became of a committed range of a topic's offsets, proved)
and ``client`` (senders that count). Posts carry absolute counts, so that one that comes twice changes
nothing: of a landed range only what lies beyond the ranges before it is taken, of a sender's posts the
highest version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.counts import Counts

Key = tuple[str, int]
"""Source and bucket."""


class BadPost(ValueError):
    """A post that cannot be understood; the text says why."""


@dataclass(frozen=True, slots=True)
class LandedPost:
    """The fates of the offsets up to ``through`` (exclusive) of a topic that no post before told."""

    topic: str
    version: int
    through: int
    counts: dict[Key, Counts]


@dataclass(frozen=True, slots=True)
class ClientPost:
    """What one sender has sent to a listener up to now: ``datagrams`` or ``lines``, and ``messages``."""

    listener: str
    sender: str
    version: int
    counts: Counts


Post = LandedPost | ClientPost


def parse(document: Any) -> Post:
    """The post of a JSON document. Raises BadPost."""
    try:
        tier = document["tier"]
        if tier == "landed":
            return LandedPost(
                _text(document["topic"]), int(document["version"]), _natural(document["through"]), _counts(document)
            )
        if tier == "client":
            counts = Counts({_text(name): _natural(count) for name, count in document["counts"].items()})
            return ClientPost(_text(document["listener"]), _text(document["sender"]), int(document["version"]), counts)
    except KeyError as error:
        raise BadPost(f"a post of this tier needs {error.args[0]!r}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadPost(f"not a post: {error}") from None
    raise BadPost(f"unknown tier {tier!r}: known are landed, client")


def _counts(document: Any) -> dict[Key, Counts]:
    counts: dict[Key, Counts] = {}
    for entry in document["counts"]:
        key = (_text(entry["source"]), int(entry["bucket"]))
        of_key = counts.setdefault(key, Counts())
        of_key.absorb({_text(name): _natural(count) for name, count in entry["counts"].items()})
    return counts


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
    else:
        entries = [{"source": s, "bucket": b, "counts": c.pruned()} for (s, b), c in post.counts.items()]
        document = {
            "tier": "landed",
            "topic": post.topic,
            "version": post.version,
            "through": post.through,
            "counts": entries,
        }
    return json.dumps(document, separators=(",", ":")).encode()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value

"""The book in a file, so that a start need not read what it has read before.

``LEDGER`` beside the topics: eight hex digits (the CRC32C of all that follows), a line with the format's version, then
lines of JSON, compressed with zstd. It replaces its predecessor in one step. It is a cache: one that is missing, torn
or of another version costs a start that reads everything, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from crc32c import crc32c

from penstock.counts import Counts, SourceBucket
from penstock.errors import PenstockError
from penstock.files.file_system import OS, replace_durably
from penstock.ledger.book import Covered, TierCounts, TopicFates
from penstock.ledger.posts import ClientPost, EventPost
from penstock.ledger.posts import dump as dump_post
from penstock.ledger.posts import parse as parse_post

FILE = "LEDGER"
"""No topic can have this name."""
FORMAT = 1
_CRC = 8
_HEAD = b"penstock ledger "
Value = TypeVar("Value")
Line = list[Any]


class BadCheckpoint(PenstockError, ValueError):
    """The bytes are no checkpoint that this Penstock can use; the text says why."""


def write(folder: Path, pages: TierCounts) -> None:
    """Keep ``pages``, durably: a crash leaves these or the ones before. Raises OSError."""
    replace_durably(OS, folder / FILE, dump(pages))


def read(folder: Path) -> TierCounts:
    """The pages that were kept. Raises FileNotFoundError, another OSError, BadCheckpoint."""
    return parse((folder / FILE).read_bytes())


def dump(pages: TierCounts) -> bytes:
    """``pages`` as bytes."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for line in _lines(pages):  # line by line, so that other threads have their turn
            stream.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    data: bytes = _HEAD + b"%d\n" % FORMAT + sink.getvalue().to_pybytes()
    return b"%08x" % crc32c(data) + data


def parse(data: bytes) -> TierCounts:
    """The pages of ``data``. Raises BadCheckpoint."""
    head, _, packed = data[_CRC:].partition(b"\n")
    if data[:_CRC] != b"%08x" % crc32c(data[_CRC:]) or not head.startswith(_HEAD):
        raise BadCheckpoint("it is damaged")
    if head != _HEAD + b"%d" % FORMAT:
        version = head.removeprefix(_HEAD).decode(errors="replace")[:20]
        raise BadCheckpoint(f"it has format {version}, this version of Penstock reads {FORMAT}")
    pages = TierCounts()
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            for line in stream.read().splitlines():
                kind, *told = json.loads(line)
                _READERS[kind](pages, *told)
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise BadCheckpoint(f"it says what no checkpoint says: {error!r}") from None
    return pages


def _lines(pages: TierCounts) -> Iterator[Line]:
    yield ["rolled", pages.rolled]
    yield ["covered", {topic: [mark.end, mark.time] for topic, mark in pages.covered.items()}]
    yield ["lost", pages.lost]
    yield ["ends", pages.ends]
    for source, told in _by_source(pages.received, Counts.pruned):
        yield ["received", source, told]
    for topic, rows in pages.logged.items():
        yield from (["logged", topic, source, told] for source, told in _by_source(rows, int))
    for topic, landed in pages.landed.items():
        refills = sorted(list(told) for told in landed.refills)
        yield ["landed", topic, landed.through, landed.version, landed.ahead, refills, landed.deletion]
        yield from (["fates", topic, source, told] for source, told in _by_source(landed.counts, Counts.pruned))
        yield from (["uuids", topic, source, told] for source, told in _by_source(landed.uuids, Counts.pruned))
    for post in pages.clients.values():
        yield ["client", post.listener, post.sender, post.version, post.counts.pruned()]
    for life, minutes in pages.audits.items():
        told = [[*key, version, counts.pruned()] for key, (version, counts) in minutes.items()]
        yield ["audit", *life, pages.heard.get(life, 0), told]
    yield from (["event", json.loads(dump_post(event))] for event in pages.events.values())
    yield ["told", {place: counts.pruned() for place, counts in pages.told.items()}]


def _by_source(keyed: Mapping[SourceBucket, Value], plain: Callable[[Value], Any]) -> Iterator[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for (source, bucket), value in keyed.items():
        found.setdefault(source, []).append([bucket, plain(value)])
    yield from found.items()


def _rolled(pages: TierCounts, before: int) -> None:
    pages.rolled = int(before)


def _covered(pages: TierCounts, told: dict[str, list[int]]) -> None:
    pages.covered = {topic: Covered(int(end), int(time)) for topic, (end, time) in told.items()}


def _lost(pages: TierCounts, told: dict[str, list[list[int]]]) -> None:
    pages.lost = {topic: [(int(begin), int(end)) for begin, end in ranges] for topic, ranges in told.items()}


def _ends(pages: TierCounts, told: dict[str, int]) -> None:
    pages.ends = {topic: int(end) for topic, end in told.items()}


def _received(pages: TierCounts, source: str, told: list[Any]) -> None:
    pages.received.update({(source, int(bucket)): Counts(counts) for bucket, counts in told})


def _logged(pages: TierCounts, topic: str, source: str, told: list[Any]) -> None:
    pages.logged.setdefault(topic, {}).update({(source, int(bucket)): int(rows) for bucket, rows in told})


def _landed(
    pages: TierCounts,
    topic: str,
    through: int,
    version: int,
    ahead: Any = (),
    refills: Any = (),  # as of old, without
    deletion: int = 0,  # as of old, without
) -> None:
    runs = tuple((int(begin), int(end)) for begin, end in ahead)
    told = frozenset((int(number), int(batch)) for number, batch in refills)
    pages.landed[topic] = TopicFates(int(through), int(version), ahead=runs, refills=told, deletion=int(deletion))


def _fates(pages: TierCounts, topic: str, source: str, told: list[Any]) -> None:
    pages.landed[topic].counts.update({(source, int(bucket)): Counts(counts) for bucket, counts in told})


def _uuids(pages: TierCounts, topic: str, source: str, told: list[Any]) -> None:
    pages.landed[topic].uuids.update({(source, int(bucket)): Counts(counts) for bucket, counts in told})


def _client(pages: TierCounts, listener: str, sender: str, version: int, counts: dict[str, int]) -> None:
    pages.clients[listener, sender] = ClientPost(listener, sender, int(version), Counts(counts))


def _audit(pages: TierCounts, tier: str, source: str, incarnation: str, heard: int, told: list[Any]) -> None:
    minutes = {(str(t), int(b)): (int(version), Counts(counts)) for t, b, version, counts in told}
    pages.audits[tier, source, incarnation] = minutes
    pages.heard[tier, source, incarnation] = int(heard)


def _event(pages: TierCounts, document: Any) -> None:
    event = parse_post(document)
    if isinstance(event, EventPost):
        pages.events[event.id] = event


def _told(pages: TierCounts, told: dict[str, dict[str, int]]) -> None:
    pages.told = {place: Counts(counts) for place, counts in told.items()}


_READERS: dict[str, Callable[..., None]] = {
    "rolled": _rolled,
    "covered": _covered,
    "lost": _lost,
    "ends": _ends,
    "received": _received,
    "logged": _logged,
    "landed": _landed,
    "fates": _fates,
    "uuids": _uuids,
    "client": _client,
    "audit": _audit,
    "event": _event,
    "told": _told,
}

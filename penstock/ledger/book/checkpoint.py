"""The ledger's checkpoint: the book in a file, so that a start reads only what came after it.

``LEDGER`` next to the topics: eight hex digits (the CRC32C of everything that follows), a line with the format's
version, then lines of JSON compressed with zstd.

Invariant: the checkpoint is a cache. A missing, torn or foreign one costs a start that reads all batches, nothing else.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from penstock.counts import Counts
from penstock.errors import PenstockError
from penstock.files.file_system import OS, FileSystem, replace_durably
from penstock.ledger.book.book_pages import BookPages, Covered, TopicFates
from penstock.ledger.book.bucket_tables import BucketTable, RowTable, SourceColumns
from penstock.ledger.book.senders import SenderPages
from penstock.ledger.posts import ClientPost, EventPost, SenderTotals
from penstock.ledger.posts import dump as dump_post
from penstock.ledger.posts import parse as parse_post

FILE = "LEDGER"
"""File name; topic names are lower case, so no topic can collide with it."""
FORMAT = 2
_CRC_DIGITS = 8
_MAGIC = b"penstock ledger "
Line = list[Any]


class BadCheckpoint(PenstockError, ValueError):
    """A checkpoint that is damaged, of another format, or with impossible content."""


def write(folder: Path, pages: BookPages, fs: FileSystem = OS) -> None:
    """Write a checkpoint durably. Crash: either the new or the previous one is complete. Raises OSError."""
    replace_durably(fs, folder / FILE, dump(pages))


def read(folder: Path) -> BookPages:
    """Read the checkpoint. Raises FileNotFoundError, another OSError, BadCheckpoint."""
    return parse((folder / FILE).read_bytes())


def dump(pages: BookPages) -> bytes:
    """Serialize ``pages``."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for line in _lines(pages):
            # Line by line: one call for the whole book would hold the interpreter lock for seconds.
            stream.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    content: bytes = _MAGIC + b"%d\n" % FORMAT + sink.getvalue().to_pybytes()
    return b"%08x" % crc32c(content) + content


def parse(content: bytes) -> BookPages:
    """Parse a checkpoint. Raises BadCheckpoint."""
    head, _, packed = content[_CRC_DIGITS:].partition(b"\n")
    # Order: the checksum covers the head, so it is checked first. Damage would otherwise look like another format.
    if content[:_CRC_DIGITS] != b"%08x" % crc32c(content[_CRC_DIGITS:]) or not head.startswith(_MAGIC):
        raise BadCheckpoint("it is damaged")
    if head != _MAGIC + b"%d" % FORMAT:
        version = head.removeprefix(_MAGIC).decode(errors="replace")[:20]
        raise BadCheckpoint(f"it has format {version}, this version of Penstock reads {FORMAT}")
    pages = BookPages()
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            # Line by line: the lines of a year would double the memory of the start.
            for line in io.BufferedReader(stream):  # type: ignore[type-var]  # it has `readinto`
                kind, *fields = json.loads(line)
                _READERS[kind](pages, *fields)
    # A valid checksum proves only that the bytes are as written. An error of a reader costs a full read, and must
    # never stop the start.
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError, OverflowError) as error:
        raise BadCheckpoint(f"its content is impossible: {error!r}") from None
    return pages


def _lines(pages: BookPages) -> Iterator[Line]:
    # The first field of a line is its kind, a name in a file format: it stays when a Python name changes.
    yield ["rolled", pages.rolled]
    yield ["covered", {topic: [mark.end, mark.time] for topic, mark in pages.covered.items()}]
    yield ["lost", pages.unreadable_ranges]
    yield ["ends", pages.ends]
    yield from _columns(["received"], pages.received)
    for topic, rows in pages.logged.items():
        yield from _columns(["logged", topic], rows)
    for topic, landed in pages.landed.items():
        backfills = sorted(list(columns) for columns in landed.backfills)
        yield ["landed", topic, landed.through, landed.version, landed.ahead, backfills, landed.deletion]
        yield from _columns(["fates", topic], landed.counts)
        yield from _columns(["uuids", topic], landed.uuids)
    for post in pages.clients.values():
        yield ["client", post.listener, post.sender, post.version, post.counts.pruned()]
    for life, minutes in pages.audits.items():
        columns = [[*key, version, counts.pruned()] for key, (version, counts) in minutes.items()]
        yield ["audit", *life, pages.last_posts.get(life, 0), columns]
    yield from (["event", json.loads(dump_post(event))] for event in pages.events.values())
    for listener, of_listener in pages.senders.items():
        yield ["senders", listener, of_listener.versions]
        for table, totals in of_listener.tables.items():
            yield ["sender", listener, table, [[n, s.first, s.last, s.counts.pruned()] for n, s in totals.items()]]
    yield ["told", {origin: counts.pruned() for origin, counts in pages.event_losses.items()}]


def _columns(head: Line, table: BucketTable[Any]) -> Iterator[Line]:
    for source, columns in table.sources():
        numbers = {name: column.tolist() for name, column in columns.columns.items()}
        yield [*head, source, columns.buckets.tolist(), numbers, list(columns.further.items())]


def _load(
    table: BucketTable[Any], source: str, buckets: list[int], numbers: dict[str, list[int]], further: list[Any]
) -> None:
    table.load(source, SourceColumns.from_lists(buckets, numbers, dict(further)))


def _rolled(pages: BookPages, before: int) -> None:
    pages.rolled = int(before)


def _covered(pages: BookPages, ends: dict[str, list[int]]) -> None:
    pages.covered = {topic: Covered(int(end), int(time)) for topic, (end, time) in ends.items()}


def _unreadable_ranges(pages: BookPages, ranges_by_topic: dict[str, list[list[int]]]) -> None:
    pages.unreadable_ranges = {
        topic: [(int(begin), int(end)) for begin, end in ranges] for topic, ranges in ranges_by_topic.items()
    }


def _ends(pages: BookPages, ends: dict[str, int]) -> None:
    pages.ends = {topic: int(end) for topic, end in ends.items()}


def _received(pages: BookPages, source: str, *columns: Any) -> None:
    _load(pages.received, source, *columns)


def _logged(pages: BookPages, topic: str, source: str, *columns: Any) -> None:
    _load(pages.logged.setdefault(topic, RowTable()), source, *columns)


def _landed(
    pages: BookPages, topic: str, through: int, version: int, ahead: Any, backfills: Any, deletion: int
) -> None:
    runs = tuple((int(begin), int(end)) for begin, end in ahead)
    backfill_ids = frozenset((int(number), int(batch)) for number, batch in backfills)
    pages.landed[topic] = TopicFates(
        int(through), int(version), ahead=runs, backfills=backfill_ids, deletion=int(deletion)
    )


def _fates(pages: BookPages, topic: str, source: str, *columns: Any) -> None:
    _load(pages.landed[topic].counts, source, *columns)


def _uuids(pages: BookPages, topic: str, source: str, *columns: Any) -> None:
    _load(pages.landed[topic].uuids, source, *columns)


def _client(pages: BookPages, listener: str, sender: str, version: int, counts: dict[str, int]) -> None:
    pages.clients[listener, sender] = ClientPost(listener, sender, int(version), Counts(counts))


def _audit(pages: BookPages, tier: str, source: str, incarnation: str, last_post: int, entries: list[Any]) -> None:
    minutes = {(str(t), int(b)): (int(version), Counts(counts)) for t, b, version, counts in entries}
    pages.audits[tier, source, incarnation] = minutes
    pages.last_posts[tier, source, incarnation] = int(last_post)


def _event(pages: BookPages, document: Any) -> None:
    event = parse_post(document)
    if isinstance(event, EventPost):
        pages.events[event.id] = event


def _event_losses(pages: BookPages, losses: dict[str, dict[str, int]]) -> None:
    pages.event_losses = {origin: Counts(counts) for origin, counts in losses.items()}


def _senders(pages: BookPages, listener: str, versions: dict[str, int]) -> None:
    pages.senders[listener] = SenderPages(versions={str(table): int(version) for table, version in versions.items()})


def _sender(pages: BookPages, listener: str, table: str, rows: list[Any]) -> None:
    totals = {str(name): SenderTotals(int(first), int(last), Counts(counts)) for name, first, last, counts in rows}
    pages.senders[listener].tables[table] = totals


_READERS: dict[str, Callable[..., None]] = {
    "rolled": _rolled,
    "covered": _covered,
    "lost": _unreadable_ranges,
    "ends": _ends,
    "received": _received,
    "logged": _logged,
    "landed": _landed,
    "fates": _fates,
    "uuids": _uuids,
    "client": _client,
    "audit": _audit,
    "event": _event,
    "told": _event_losses,
    "senders": _senders,
    "sender": _sender,
}

"""What a segment's batches said of themselves, a second time: for when a batch itself cannot be read any more.

A journal beside the segment, a line for each batch: its offsets, and its origin with its counts. So a damaged batch
costs its rows, and the balance closes without them. Of an internal topic, whose entries are counts and posts, a line
has the batch itself, which is put back in its place. The journal follows the synced data, and recovery adds what it
lacks; a compacted segment keeps the lines of the batches that became one.
"""

from __future__ import annotations

import base64
import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.counts import Counts, Origin, by_bucket
from penstock.files.checked_lines import encode_line, read_lines_from
from penstock.files.file_system import Bytes, FileSystem, replace_durably
from penstock.log.errors import UnknownFormat
from penstock.log.store.batch_format import Message
from penstock.log.store.gaps import Gap
from penstock.log.store.index import IndexRecords
from penstock.log.store.segment import SegmentFiles

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchCopy:
    """Of the batch with the rows [base, end) and this CRC32C at byte ``position``.

    ``data`` are its bytes, where they are kept, ``told`` is the journal's line.
    """

    base: int
    end: int
    crc: int
    position: int
    origin: Origin
    data: bytes
    told: Mapping[str, Any]


@dataclass(slots=True)
class Journal:
    """What can be read of a segment's journal, by offset; ``length`` is the file's, where all of it can be read."""

    copies: list[BatchCopy] = field(default_factory=list)
    length: int = -1


def line(files: SegmentFiles, message: Message, parts: Iterable[Bytes]) -> bytes:
    """The journal's line of a batch; ``parts`` are its bytes."""
    m = message
    told = {"segment": files.fingerprint, "base": m.base, "rows": m.rows, "crc": f"{m.crc:08x}", "at": m.position}
    copy = {"data": base64.b64encode(b"".join(parts)).decode()} if files.is_internal else {}
    return encode_line({**told, **m.origin.document(), **copy})


def read(files: SegmentFiles) -> Journal:
    """The journal of a segment; empty where there is none, or another segment's."""
    known: dict[int, BatchCopy] = {}
    damaged: list[object] = []
    position = 0
    with contextlib.suppress(UnknownFormat):  # it is made anew
        for position, (mark, copy) in read_lines_from(files.copies, _copy_of, damaged=damaged.append):  # noqa: B007
            if mark == files.fingerprint:
                known[copy.base] = copy
    whole = not damaged and files.copies.exists() and files.copies.stat().st_size == position
    return Journal([known[base] for base in sorted(known)], position if whole else -1)


def _copy_of(told: dict[str, Any]) -> tuple[int, BatchCopy]:
    base, rows, position, crc = *(int(told[name]) for name in ("base", "rows", "at")), int(told["crc"], 16)
    data = base64.b64decode(told.get("data", ""))
    return int(told["segment"]), BatchCopy(base, base + rows, crc, position, Origin.from_document(told), data, told)


def restore_batches(fs: FileSystem, files: SegmentFiles) -> bool:
    """Write batches of an internal topic whose bytes are not what they were again, in their places; whether any were.

    Raises OSError.
    """
    if not files.is_internal:
        return False
    data = fs.map(files.data)
    lost = [copy for copy in read(files).copies if copy.data and not _holds(data, copy)]
    if lost:
        _LOGGER.warning("%s: %d damaged batches are put back from their copies", files.data, len(lost))
        with contextlib.closing(fs.open(files.data)) as file:
            for copy in lost:
                file.write([copy.data], copy.position)
            file.sync()
    return bool(lost)


def _holds(data: pa.Buffer, copy: BatchCopy) -> bool:
    return bytes(memoryview(data)[copy.position : copy.position + len(copy.data)]) == copy.data


def rebuild(
    fs: FileSystem, files: SegmentFiles, data: pa.Buffer, messages: Sequence[Message], bad: IndexRecords
) -> int:
    """Make the journal tell of ``messages``, and of ``bad`` what it told; its length. Raises OSError."""
    journal = read(files)
    ranges = list(zip(bad["base"].tolist(), (bad["base"] + bad["rows"]).tolist(), strict=True))
    kept = [copy for copy in journal.copies if any(begin <= copy.base < end for begin, end in ranges)]
    expected = sorted([*((m.base, m.crc) for m in messages), *((copy.base, copy.crc) for copy in kept)])
    if journal.length >= 0 and expected == [(copy.base, copy.crc) for copy in journal.copies]:
        return journal.length
    lines = {copy.base: encode_line(copy.told) for copy in kept}
    lines |= {m.base: line(files, m, [memoryview(data)[m.position : m.position + m.length]]) for m in messages}
    text = b"".join(lines[base] for base in sorted(lines))
    replace_durably(fs, files.copies, text)
    return len(text)


def gaps(copies: Iterable[BatchCopy], begin: int, end: int, reason: str) -> Iterator[Gap]:
    """Gaps with their counts for the batches that lie within [begin, end); those that follow each other are one."""
    run: list[BatchCopy] = []
    for copy in copies:
        if begin <= copy.base and copy.end <= end:
            if run and run[-1].end != copy.base:
                yield _gap(run, reason)
                run = []
            run.append(copy)
    if run:
        yield _gap(run, reason)


def _gap(run: Sequence[BatchCopy], reason: str) -> Gap:
    rows: dict[str, dict[int, int]] = {}
    received: dict[str, dict[int, Counts]] = {}
    for copy in run:
        origin = copy.origin
        of_source = rows.setdefault(origin.source, {})
        of_source[origin.bucket] = of_source.get(origin.bucket, 0) + copy.end - copy.base
        for bucket, counts in by_bucket(origin.bucket, origin.counts).items():
            received.setdefault(origin.source, {}).setdefault(bucket, Counts()).absorb(counts)
    return Gap(run[0].base, run[-1].end, reason, rows, received)

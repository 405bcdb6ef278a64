"""The journal of a segment's copies: what each batch says about itself, a second time.

A line has a batch's offsets, origin and counts, so that a damaged batch costs its rows but the balance still closes.
In an internal topic, whose rows are counts and posts, a line also has the batch itself, and a damaged one is restored.

Order: lines are written after the data is synced; recovery adds missing lines. A compacted segment keeps the lines of
the batches that were merged.
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
from penstock.log.store.batch_format import IpcMessage
from penstock.log.store.gaps import Gap
from penstock.log.store.index import IndexRecords
from penstock.log.store.segment_files import SegmentFiles

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchCopy:
    """A line of the journal: the batch with rows [base, end) and this CRC32C at byte ``position``.

    ``data`` are the batch's bytes, empty outside internal topics; ``document`` is the line itself.
    """

    base: int
    end: int
    crc: int
    position: int
    origin: Origin
    data: bytes
    document: Mapping[str, Any]


@dataclass(slots=True)
class Journal:
    """The readable lines of a journal by offset; ``length`` is its size, -1 if a part is unreadable."""

    copies: list[BatchCopy] = field(default_factory=list)
    length: int = -1


def line(files: SegmentFiles, message: IpcMessage, parts: Iterable[Bytes]) -> bytes:
    """Return the journal line of a batch; ``parts`` are its bytes."""
    m = message
    document = {"segment": files.fingerprint, "base": m.base, "rows": m.rows, "crc": f"{m.crc:08x}", "at": m.position}
    copy = {"data": base64.b64encode(b"".join(parts)).decode()} if files.is_internal else {}
    return encode_line({**document, **m.origin.document(), **copy})


def read(files: SegmentFiles) -> Journal:
    """Return a segment's journal; an empty one if the file is missing or another segment's."""
    copies: dict[int, BatchCopy] = {}
    damaged: list[object] = []
    position = 0
    with contextlib.suppress(UnknownFormat):  # recovery rewrites it from the batches
        for position, (mark, copy) in read_lines_from(files.copies, _parse_copy, damaged=damaged.append):  # noqa: B007
            if mark == files.fingerprint:
                copies[copy.base] = copy
    whole = not damaged and files.copies.exists() and files.copies.stat().st_size == position
    return Journal([copies[base] for base in sorted(copies)], position if whole else -1)


def _parse_copy(document: dict[str, Any]) -> tuple[int, BatchCopy]:
    base, rows, position, crc = *(int(document[name]) for name in ("base", "rows", "at")), int(document["crc"], 16)
    data = base64.b64decode(document.get("data", ""))
    return int(document["segment"]), BatchCopy(
        base, base + rows, crc, position, Origin.from_document(document), data, document
    )


def restore_batches(fs: FileSystem, files: SegmentFiles) -> bool:
    """Restore damaged batches of an internal topic in place; return whether there were any. Raises OSError."""
    if not files.is_internal:
        return False
    data = fs.map(files.data)
    lost = [copy for copy in read(files).copies if copy.data and not _is_intact(data, copy)]
    if lost:
        _LOGGER.warning("%s: %d damaged batches are restored from their copies", files.data, len(lost))
        with contextlib.closing(fs.open(files.data)) as file:
            # Crash: each batch has a checksum, so one that is restored in part is found and restored again.
            for copy in lost:
                file.write([copy.data], copy.position)
            file.sync()
    return bool(lost)


def _is_intact(data: pa.Buffer, copy: BatchCopy) -> bool:
    return bytes(memoryview(data)[copy.position : copy.position + len(copy.data)]) == copy.data


def rebuild(
    fs: FileSystem, files: SegmentFiles, data: pa.Buffer, messages: Sequence[IpcMessage], bad: IndexRecords
) -> int:
    """Rewrite the journal if it differs from ``messages`` and the old lines of ``bad``; return its length.

    Raises OSError.
    """
    journal = read(files)
    ranges = list(zip(bad["base"].tolist(), (bad["base"] + bad["rows"]).tolist(), strict=True))
    # Lines of unreadable batches are the only record of their counts and cannot be rebuilt.
    retained = [copy for copy in journal.copies if any(begin <= copy.base < end for begin, end in ranges)]
    expected = sorted([*((m.base, m.crc) for m in messages), *((copy.base, copy.crc) for copy in retained)])
    if journal.length >= 0 and expected == [(copy.base, copy.crc) for copy in journal.copies]:
        return journal.length
    lines = {copy.base: encode_line(copy.document) for copy in retained}
    lines |= {m.base: line(files, m, [memoryview(data)[m.position : m.position + m.length]]) for m in messages}
    text = b"".join(lines[base] for base in sorted(lines))
    replace_durably(fs, files.copies, text)
    return len(text)


def gaps(copies: Iterable[BatchCopy], begin: int, end: int, reason: str) -> Iterator[Gap]:
    """Yield gaps with counts for the batches within [begin, end); contiguous batches share a gap."""
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

"""Show the contents of a log buffer file: as the text of Aeron's LogInspector, as JSON, and as batches of Penstock.

Every function opens the file read-only, at any time, and raises NotALogBuffer or OSError. Files whose metadata are
damaged are shown as LogInspector shows them, as long as their terms can be found; ``problem`` says what is wrong.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock import records
from penstock.logbuffer import descriptor
from penstock.logbuffer.aeron.fragments import FragmentAssembler
from penstock.logbuffer.aeron.images import newest_count
from penstock.logbuffer.frame_search import next_frame
from penstock.logbuffer.mapped import Frame, LogFile

RULE: Final = "=" * 70
NO_LIMIT: Final = (1 << 31) - 1
ASCII_FORMATS: Final = ("ascii", "us-ascii", "us_ascii")
_ASCII: Final = bytes(range(128)) + bytes(128)
"""Translation table: LogInspector shows bytes of 128 or more as character 0."""

_SCANNED_WORDS: Final = 65_536


@dataclass(frozen=True)
class Options:
    """Options of LogInspector. ``limit``: bytes shown of each message."""

    data_format: str = "hex"
    limit: int = NO_LIMIT
    skip_default_header: bool = False
    scan_over_zeroes: bool = False

    def text(self, data: memoryview) -> str:
        excerpt = data[: self.limit].tobytes()
        if self.data_format in ASCII_FORMATS:
            return excerpt.translate(_ASCII).decode("latin-1")
        return excerpt.hex().upper()


def dump(path: Path | str, options: Options = Options()) -> Iterator[str]:
    """Yield LogInspector's text line by line (its second line has date and path)."""
    log = LogFile(path, tolerant=True)
    try:
        yield from _heading(log, path)
        if not options.skip_default_header:
            yield f"default {_header_text(_default_header(log))}"
        yield ""
        for index in range(descriptor.PARTITIONS):
            yield _tail_text(log, index)
        for index in range(descriptor.PARTITIONS):
            yield from ("", RULE, f"Index {index} Term Data", "")
            yield from _term_text(log, index, options)
    finally:
        log.close()


def problem(path: Path | str) -> str:
    """Return the fault of the file's metadata in one line; empty if they are valid."""
    log = LogFile(path, tolerant=True)
    log.close()
    return log.problem


def as_json(path: Path | str, limit: int = 0) -> dict[str, Any]:
    """Return the contents as a JSON document: ``problem``, ``metadata``, ``default_header``, ``terms`` with frames.

    Zeros are skipped. ``limit`` bytes of each message are shown as hex in ``data``. A term ends with the first header
    that has no valid length, as ``torn``.
    """
    log = LogFile(path, tolerant=True)
    try:
        return {
            "path": str(path),
            "problem": log.problem or None,
            "metadata": {field.name: log.load(field) for field in descriptor.FIELDS},
            "default_header": _as_document(_default_header(log)),
            "terms": [_term_document(log, index, limit) for index in range(descriptor.PARTITIONS)],
        }
    finally:
        log.close()


@dataclass(frozen=True)
class Batch:
    """A message of a log buffer, decoded as one of our encapsulated Arrow messages."""

    position: int
    frame_length: int
    """Header and payload in bytes; of the whole message if it was fragmented."""
    reserved_value: int
    rows: int | None
    document: dict[str, Any] | None
    problem: str | None = None
    """Reason why the message is not one of ours; without rows and document."""


def batches(path: Path | str) -> list[Batch]:
    """Return the messages in the file, by position."""
    log = LogFile(path, tolerant=True)
    try:
        return [_batch(message) for message in FragmentAssembler().push(_frames(log))]
    finally:
        log.close()


def _batch(message: Frame) -> Batch:
    length = len(message.data) + descriptor.HEADER_LENGTH
    try:
        batch, document = records.decode(message.data, records.BODY)
        return Batch(message.begin, length, message.reserved_value, batch.num_rows, document)
    except records.BadBatch as error:
        return Batch(message.begin, length, message.reserved_value, None, None, str(error))


def _frames(log: LogFile) -> Iterator[Frame]:
    """Yield the data frames of the three newest terms, in order."""
    active = newest_count(log) * log.term_length
    for begin in range(max(0, active - 2 * log.term_length), active + 1, log.term_length):
        position: int | None = begin
        while position is not None and position < begin + log.term_length:
            length, flags, kind = log.whole_frame(position)
            if not length:
                position = next_frame(log, position)
                continue
            if kind == descriptor.DATA:
                yield log.frame(position, length, flags)
            position += descriptor.align(length)


def _heading(log: LogFile, path: Path | str) -> Iterator[str]:
    count = log.load(descriptor.ACTIVE_TERM_COUNT)
    yield RULE
    yield f"{time.strftime('%a %b %d %H:%M:%S %Z %Y')} Inspection dump for {path}"
    yield RULE
    yield f"   Is connected: {str(log.load(descriptor.IS_CONNECTED) == 1).lower()}"
    yield f"Initial term id: {log.initial_term_id}"
    yield f"     Term count: {count}"
    # As in Java, a damaged count keeps its sign.
    yield f"   Active index: {int(math.fmod(count, descriptor.PARTITIONS))}"
    yield f"    Term length: {log.term_length}"
    yield f"     MTU length: {log.load(descriptor.MTU_LENGTH)}"
    yield f"      Page size: {log.load(descriptor.PAGE_SIZE)}"
    yield f"   EOS position: {log.load(descriptor.END_OF_STREAM_POSITION)}"
    yield ""


def _tail(log: LogFile, index: int) -> dict[str, int]:
    raw = log.load(descriptor.TAIL_COUNTERS[index])
    term_id = descriptor.tail_term_id(raw)
    offset = descriptor.tail_offset(raw, log.term_length)
    position = descriptor.position_of(term_id, offset, log.initial_term_id, log.term_length)
    return {"term_offset": raw & 0xFFFFFFFF, "term_id": term_id, "raw_tail": raw, "position": position}


def _tail_text(log: LogFile, index: int) -> str:
    tail = _tail(log, index)
    return (
        f"Index {index} Term Meta Data termOffset={tail['term_offset']} termId={tail['term_id']} "
        f"rawTail={tail['raw_tail']} position={tail['position']}"
    )


def _term_text(log: LogFile, index: int, options: Options) -> Iterator[str]:
    start, offset = index * log.term_length, 0
    while offset < log.term_length:
        header = descriptor.HEADER.unpack_from(log.bytes, start + offset)
        yield f"{offset}: {_header_text(header)}"
        length = header[0]
        if length == 0 and options.scan_over_zeroes:
            offset += descriptor.FRAME_ALIGNMENT
            continue
        # As in LogInspector, a frame without a valid length shows the rest of the term and ends it.
        end = min(offset + length, log.term_length) if length >= descriptor.HEADER_LENGTH else log.term_length
        yield options.text(log.bytes[start + offset + descriptor.HEADER_LENGTH : start + end])
        offset = offset + descriptor.align(length) if length >= descriptor.HEADER_LENGTH else log.term_length


def _header_text(header: tuple[int, ...]) -> str:
    length, version, flags, kind, offset, session_id, stream_id, term_id, reserved_value = header
    return (
        f"DATA Header{{frame-length={length} version={version} flags={flags:08b} type={kind} term-offset={offset} "
        f"session-id={session_id} stream-id={stream_id} term-id={term_id} reserved-value={reserved_value}}}"
    )


def _default_header(log: LogFile) -> tuple[int, ...]:
    return descriptor.HEADER.unpack_from(log.bytes, log.size - descriptor.METADATA_LENGTH + descriptor.DEFAULT_HEADER)


def _as_document(header: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(descriptor.HEADER_DTYPE.names or (), header, strict=True))


def _term_document(log: LogFile, index: int, limit: int) -> dict[str, Any]:
    start, offset = index * log.term_length, 0
    frames: list[dict[str, Any]] = []
    document: dict[str, Any] = {"index": index, **_tail(log, index), "frames": frames}
    words = np.frombuffer(log.bytes, np.int64, log.term_length // 8, start)
    while (offset := _next_used(words, offset)) < log.term_length:
        header = descriptor.HEADER.unpack_from(log.bytes, start + offset)
        entry: dict[str, Any] = {"offset": offset, **_as_document(header)}
        if header[0] < descriptor.HEADER_LENGTH:
            return document | {"torn": entry}
        if limit:
            end = min(header[0], descriptor.HEADER_LENGTH + limit, log.term_length - offset)
            entry["data"] = log.bytes[start + offset + descriptor.HEADER_LENGTH : start + offset + end].hex()
        frames.append(entry)
        offset += descriptor.align(header[0])
    return document


def _next_used(words: np.ndarray, offset: int) -> int:
    """Return the first aligned offset from ``offset`` on whose bytes are not all zero, or the term length."""
    begin = offset // 8
    while begin < len(words):
        # Fast path: 512 KiB at a time, because the next frame is usually near.
        part = words[begin : begin + _SCANNED_WORDS]
        if part.any():
            return int(begin + np.argmax(part != 0)) * 8 & -descriptor.FRAME_ALIGNMENT
        begin += _SCANNED_WORDS
    return len(words) * 8

"""A log buffer file in memory: loads, stores and frames by position.

Order of stores: on x86-64 a core's stores become visible in program order, and an aligned store of 4
or 8 bytes is never seen half done. CPython compiles ``view[i] = n`` on a memoryview of a native format
to one such store, and the C library ends a copy that used non-temporal stores with a fence. So a
payload copied before its frame's length is stored is there for everybody who sees that length.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import platform
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from penstock.logbuffer import descriptor as d
from penstock.logbuffer.errors import Busy, NotALogBuffer, UnsupportedProcessor

RELEASE_EVERY = 0.25
"""Seconds after which the pages that were touched are let go of."""


class Frame(NamedTuple):
    """A frame of a log buffer, or a message put together from several.

    ``data`` is a view into the buffer: it is good until the reader's position has moved on and the
    writer cleans behind it. ``begin`` and ``end`` are positions; the next frame begins at ``end``.
    """

    data: memoryview
    begin: int
    end: int
    reserved_value: int
    flags: int = d.UNFRAGMENTED


def require_x86_64(machine: str | None = None) -> None:
    """Raises UnsupportedProcessor where the order of plain stores is not that of x86-64."""
    machine = platform.machine() if machine is None else machine
    if machine.lower() not in ("x86_64", "amd64"):
        raise UnsupportedProcessor(f"a log buffer needs an x86-64 processor, this is {machine or 'an unknown one'}")


class LogFile:
    """A mapped log buffer file. Raises NotALogBuffer with one line, OSError as ``open`` does."""

    def __init__(self, path: Path | str, *, writable: bool = False) -> None:
        self.path = Path(path)
        with open(self.path, "r+b" if writable else "rb") as file:
            self.identity = os.fstat(file.fileno())
            size = self.identity.st_size
            parameters = _read_parameters(file.fileno(), size, self.path)
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(file.fileno(), size, access=access)
        self.bytes = memoryview(self._map)
        self.ints = self.bytes.cast("i")
        self.longs = self.bytes.cast("q")
        self.size = size
        self.parameters = parameters
        self.term_length = parameters.term_length
        self.initial_term_id = parameters.initial_term_id
        self._mask = self.term_length - 1
        self._bits = d.position_bits(self.term_length)
        self._meta = size - d.METADATA_LENGTH
        self.closed = False
        self._release_at, self._had_come_to, self._keeps_pages = 0.0, 0, True

    def release(self, position: int) -> None:
        """Called often, with how far this process has come: lets go of the pages touched so far when it is time.

        They stay in the page cache, and count as this process's no more. Where a term was passed since the last time
        they are kept: they are touched again at once, and to fault them in anew is a sixth of the time then.
        """
        now = time.monotonic()
        if now < self._release_at or (position == self._had_come_to and not self._keeps_pages):
            return
        self._keeps_pages = position - self._had_come_to >= self.term_length
        if not self._keeps_pages and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)  # of a shared mapping of a file nothing is lost by it
        self._release_at, self._had_come_to = now + RELEASE_EVERY, position

    # Positions

    def offset_of(self, position: int) -> int:
        """Where in the file a position stands."""
        return ((position >> self._bits) % d.PARTITIONS << self._bits) + (position & self._mask)

    def term_count(self, position: int) -> int:
        return position >> self._bits

    def term_id(self, position: int) -> int:
        return d.int32(self.initial_term_id + (position >> self._bits))

    def term_begin(self, position: int) -> int:
        return position & ~self._mask

    def term_end(self, position: int) -> int:
        return (position & ~self._mask) + self.term_length

    def tail_at(self, position: int) -> tuple[int, int]:
        """(term count, offset) of a tail there: behind the last term that can be none begins."""
        count = min(position >> self._bits, d.MAX_TERM_COUNT)
        return count, position - (count << self._bits)

    # Loads and stores

    def load(self, field: d.Field) -> int:
        at = self._meta + field.offset
        if field.code == "i":
            return self.ints[at >> 2]
        if field.code == "q" and not at & 7:
            return self.longs[at >> 3]
        value: int = struct.unpack_from("<" + field.code, self.bytes, at)[0]
        return value

    def store(self, field: d.Field, value: int) -> None:
        """One aligned store of 4 or 8 bytes. The fields that are neither are never written again."""
        at = self._meta + field.offset
        if field.code == "i":
            self.store_int(at, value)
        else:
            self.store_long(at, value)

    def store_int(self, at: int, value: int) -> None:
        self.ints[at >> 2] = value

    def store_long(self, at: int, value: int) -> None:
        self.longs[at >> 3] = value

    def copy(self, at: int, data: bytes | memoryview) -> None:
        """One memcpy. ``data`` is bytes or a memoryview of bytes."""
        self.bytes[at : at + len(data)] = data

    def copy_rows(self, at: int, stride: int, rows: np.ndarray) -> None:
        """Copies the rows of ``rows`` (n, width) uint8 to ``at``, ``at + stride`` and so on."""
        row = np.dtype((np.void, rows.shape[1]))
        place = np.ndarray((len(rows),), row, self.bytes, at, (stride,))
        place[:] = rows.view(row)[:, 0]

    def copy_columns(self, at: int, stride: int, columns: Sequence[np.ndarray]) -> None:
        """Copies row i of ``columns``, each (n,) int64, to ``at + i * stride``, one word behind the other."""
        place = np.ndarray((len(columns[0]), len(columns)), np.int64, self.bytes, at, (stride, 8))
        for index, column in enumerate(columns):
            place[:, index] = column

    def fill_zero(self, at: int, length: int) -> None:
        """Zeroes a range that begins at a frame, the first frame's length last."""
        if length > 8:
            np.frombuffer(self.bytes, np.uint8, length - 8, at + 8).fill(0)
        if length > 0:
            self.store_long(at, 0)

    # Frames

    def begin_frame(self, position: int, length: int, flags: int, kind: int, reserved_value: int) -> int:
        """Writes a header with the length negative: the frame is there for nobody yet. Returns its file offset."""
        at = self.offset_of(position)
        p = self.parameters
        term_id = self.term_id(position)
        self.store_int(at, -length)
        self.copy(at + 4, d.HEADER_REST.pack(0, flags, kind, position & self._mask, p.session_id, p.stream_id, term_id))
        self.store_long(at + 24, reserved_value)
        return at

    def publish(self, at: int, length: int) -> None:
        """Makes the frame visible."""
        self.store_int(at, length)

    def pad(self, position: int, length: int) -> None:
        """A padding frame of ``length`` bytes in all."""
        self.publish(self.begin_frame(position, length, d.UNFRAGMENTED, d.PAD, 0), length)

    def blank(self, position: int, length: int) -> None:
        """Padding over what was never published, zeroed: frames under it must not come to light after all."""
        at = self.begin_frame(position, length, d.UNFRAGMENTED, d.PAD, 0)
        self.fill_zero(at + d.HEADER_LENGTH, length - d.HEADER_LENGTH)
        self.publish(at, length)

    def whole_frame(self, position: int) -> tuple[int, int, int]:
        """(frame length, flags, type) of the published frame that begins at ``position``; length 0 when none does."""
        at = self.offset_of(position)
        length = self.ints[at >> 2]  # before the rest: what was stored before it is visible after it
        if length < d.HEADER_LENGTH:
            return 0, 0, 0
        version, flags, kind, term_offset, session_id, stream_id, term_id = d.HEADER_REST.unpack_from(
            self.bytes, at + 4
        )
        offset = position & self._mask
        if length > self.term_length - offset or term_offset != offset:
            return 0, 0, 0
        if term_id != self.term_id(position) or version or kind > d.DATA:
            return 0, 0, 0
        if session_id != self.parameters.session_id or stream_id != self.parameters.stream_id:
            return 0, 0, 0
        return length, flags, kind

    def frame(self, position: int, length: int, flags: int) -> Frame:
        """The frame at ``position``, whose frame length and flags are known."""
        at = self.offset_of(position)
        data = self.bytes[at + d.HEADER_LENGTH : at + length]
        return Frame(data, position, position + d.align(length), self.longs[(at + 24) >> 3], flags)

    def headers(self, begin: int, end: int) -> np.ndarray:
        """The slots of the positions [begin, end), which lie in one term, as an array of HEADER_DTYPE."""
        count = (end - begin) // d.FRAME_ALIGNMENT
        return np.frombuffer(self.bytes, d.HEADER_DTYPE, count, self.offset_of(begin))

    def close(self) -> None:
        """Views that are still held keep the mapping until they die; nothing else of it stays open."""
        self.closed = True
        for view in (self.longs, self.ints, self.bytes):
            with contextlib.suppress(BufferError):
                view.release()
        with contextlib.suppress(BufferError):
            self._map.close()


def create_file(path: Path, parameters: d.Parameters, position: int) -> None:
    """A new file, allocated in full (a sparse map on a full disk would be a SIGBUS) and on the disk when it appears."""
    if path.exists():
        raise FileExistsError(f"{path} exists")
    unfinished = path.with_name(path.name + ".new")
    try:
        with open(unfinished, "wb", opener=lambda path, flags: os.open(path, flags, 0o640)) as file:
            os.posix_fallocate(file.fileno(), 0, parameters.file_length)
            os.pwrite(file.fileno(), parameters.metadata(position), parameters.file_length - d.METADATA_LENGTH)
            os.fsync(file.fileno())
        os.rename(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def lock_file(path: Path) -> IO[bytes]:
    """The right to publish into ``path``: held until the file object is closed or its process dies."""
    file = open(path, "rb")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise Busy(f"another process publishes into {path}") from None
    return file


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_parameters(file: int, size: int, path: Path) -> d.Parameters:
    if size < d.file_length(d.TERM_MIN_LENGTH, d.PAGE_MIN_LENGTH):
        raise NotALogBuffer(f"{path} is not a log buffer: {size} bytes are too few")
    parameters, problem = read_metadata(os.pread(file, d.METADATA_LENGTH, size - d.METADATA_LENGTH), size)
    if parameters is None:
        raise NotALogBuffer(f"{path} is not a log buffer: {problem}")
    return parameters


def read_metadata(block: bytes, size: int) -> tuple[d.Parameters | None, str]:
    """What the 4,096 bytes of metadata say of a file of ``size`` bytes; or None, and why they are none."""

    def value(field: d.Field) -> int:
        number: int = struct.unpack_from("<" + field.code, block, field.offset)[0]
        return number

    header = d.HEADER.unpack_from(block, d.DEFAULT_HEADER)
    problem = _problem(value, header, size)
    if problem:
        return None, problem
    parameters = d.Parameters(
        term_length=value(d.TERM_LENGTH),
        mtu=value(d.MTU_LENGTH),
        session_id=header[5],
        stream_id=header[6],
        initial_term_id=value(d.INITIAL_TERM_ID),
        kind=d.Kind(value(d.TYPE)),
        page_size=value(d.PAGE_SIZE),
        correlation_id=value(d.CORRELATION_ID),
        window=value(d.PUBLICATION_WINDOW),
        sparse=bool(value(d.SPARSE)),
    )
    return parameters, ""


def _problem(value: Callable[[d.Field], int], header: tuple[int, ...], size: int) -> str | None:
    term_length, page_size = value(d.TERM_LENGTH), value(d.PAGE_SIZE)
    problem = d.geometry_problem(term_length, page_size, value(d.MTU_LENGTH))
    if problem:
        return problem
    if d.file_length(term_length, page_size) != size:
        return f"{size} bytes are the wrong size for terms of {term_length}"
    if value(d.DEFAULT_HEADER_LENGTH) != d.HEADER_LENGTH or header[3] != d.DATA or header[1] != 0:
        return "its default frame header is none"
    if value(d.TYPE) > d.Kind.IMAGE or header[7] != value(d.INITIAL_TERM_ID):
        return "its metadata contradict themselves"
    if not 0 <= value(d.PUBLICATION_WINDOW) <= term_length:
        return "its publication window is longer than a term"
    return None

"""A log buffer file in memory: loads, stores and frames by position.

An aligned store of 4 or 8 bytes is never seen half done; CPython compiles ``view[i] = n`` on a memoryview of a native
format to one such store. On x86-64 stores become visible in program order, and the C library ends a copy with
non-temporal stores by a fence. On arm64 a barrier before the store of a frame's length and one after its load give the
same (``files.memory_order``). So a reader that sees the length sees the payload that was copied before it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from penstock.files import memory_order
from penstock.logbuffer import descriptor
from penstock.logbuffer.errors import Busy, NotALogBuffer, UnsupportedProcessor

RELEASE_INTERVAL_S = 0.25
"""Interval of unmapping touched pages from this process."""


class Frame(NamedTuple):
    """A frame of a log buffer, or a message assembled from several.

    ``data`` is a view into the buffer, valid until the reader's position moves on and the writer cleans behind it.
    ``begin`` and ``end`` are positions; the next frame begins at ``end``.
    """

    data: memoryview
    begin: int
    end: int
    reserved_value: int
    flags: int = descriptor.UNFRAGMENTED


def require_ordered_memory(reason: str = memory_order.UNSUPPORTED) -> None:
    """Raise UnsupportedProcessor with ``reason`` unless this process can order its loads and stores."""
    if reason:
        raise UnsupportedProcessor(reason)


class LogFile:
    """A mapped log buffer file. Raises NotALogBuffer in one line, and OSError as ``open`` does.

    ``tolerant`` also opens a file with damaged metadata, as long as its terms lie within the file; ``problem`` says
    what is wrong, and is empty for valid metadata. Only the inspector reads such files.
    """

    def __init__(self, path: Path | str, *, writable: bool = False, tolerant: bool = False) -> None:
        self.path = Path(path)
        with open(self.path, "r+b" if writable else "rb") as file:
            self.identity = os.fstat(file.fileno())
            size = self.identity.st_size
            parameters, self.problem = _read_parameters(file.fileno(), size, self.path, tolerant)
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
        self._bits = descriptor.position_bits(self.term_length)
        self._metadata_offset = size - descriptor.METADATA_LENGTH
        self.closed = False
        self._next_release_s, self._released_position, self._keeps_pages = 0.0, 0, True

    def release(self, position: int) -> None:
        """Unmap the pages touched so far if it is time; called often with this process's position.

        The pages stay in the page cache, but no longer count as this process's memory.
        """
        now = time.monotonic()
        if now < self._next_release_s or (position == self._released_position and not self._keeps_pages):
            return
        # Fast path: if a whole term passed since the last call, its pages are touched again at once, and faulting them
        # in would take a sixth of the time. They stay mapped.
        self._keeps_pages = position - self._released_position >= self.term_length
        if not self._keeps_pages and hasattr(mmap, "MADV_DONTNEED"):
            # Loses nothing: the mapping is shared, so the page cache has the bytes.
            self._map.madvise(mmap.MADV_DONTNEED)
        self._next_release_s, self._released_position = now + RELEASE_INTERVAL_S, position

    def offset_of(self, position: int) -> int:
        """Return the file offset of a position."""
        return ((position >> self._bits) % descriptor.PARTITIONS << self._bits) + (position & self._mask)

    def term_count(self, position: int) -> int:
        return position >> self._bits

    def term_id(self, position: int) -> int:
        return descriptor.int32(self.initial_term_id + (position >> self._bits))

    def term_begin(self, position: int) -> int:
        return position & ~self._mask

    def term_end(self, position: int) -> int:
        return (position & ~self._mask) + self.term_length

    def tail_at(self, position: int) -> tuple[int, int]:
        """Return term count and offset of a tail at ``position``; behind the last term no further one begins."""
        count = min(position >> self._bits, descriptor.MAX_TERM_COUNT)
        return count, position - (count << self._bits)

    def load(self, field: descriptor.Field) -> int:
        file_offset = self._metadata_offset + field.offset
        if field.code == "i":
            return self.ints[file_offset >> 2]
        if field.code == "q" and not file_offset & 7:
            return self.longs[file_offset >> 3]
        number: int = struct.unpack_from("<" + field.code, self.bytes, file_offset)[0]
        return number

    def store(self, field: descriptor.Field, value: int) -> None:
        """Store 4 or 8 bytes in one aligned store; other fields are written only at creation."""
        file_offset = self._metadata_offset + field.offset
        if field.code == "i":
            self.store_int(file_offset, value)
        else:
            self.store_long(file_offset, value)

    def store_int(self, file_offset: int, value: int) -> None:
        self.ints[file_offset >> 2] = value

    def store_long(self, file_offset: int, value: int) -> None:
        self.longs[file_offset >> 3] = value

    def copy(self, file_offset: int, data: bytes | memoryview) -> None:
        """Copy bytes or a memoryview of bytes by one memcpy."""
        self.bytes[file_offset : file_offset + len(data)] = data

    def copy_rows(self, file_offset: int, stride: int, rows: np.ndarray) -> None:
        """Copy ``rows`` (n, width) uint8 to ``file_offset``, ``file_offset + stride`` and so on."""
        row = np.dtype((np.void, rows.shape[1]))
        target = np.ndarray((len(rows),), row, self.bytes, file_offset, (stride,))
        target[:] = rows.view(row)[:, 0]

    def copy_columns(self, file_offset: int, stride: int, columns: Sequence[np.ndarray]) -> None:
        """Copy row i of ``columns``, each (n,) int64, to ``file_offset + i * stride`` as consecutive words."""
        target = np.ndarray((len(columns[0]), len(columns)), np.int64, self.bytes, file_offset, (stride, 8))
        for index, column in enumerate(columns):
            target[:, index] = column

    def fill_zero(self, file_offset: int, length: int) -> None:
        """Zero a range that begins at a frame."""
        if length > 8:
            # Order: the first word last, as in Aeron: where it is zero, the rest of the range is zero too.
            np.frombuffer(self.bytes, np.uint8, length - 8, file_offset + 8).fill(0)
        if length > 0:
            self.store_long(file_offset, 0)

    def begin_frame(self, position: int, length: int, flags: int, kind: int, reserved_value: int) -> int:
        """Write a header with its length negative, which readers treat as no frame; return its file offset."""
        file_offset = self.offset_of(position)
        p = self.parameters
        term_id = self.term_id(position)
        # Order: the negative length first; after a crash recovery knows how far the unfinished frame reaches.
        self.store_int(file_offset, -length)
        self.copy(
            file_offset + 4,
            descriptor.HEADER_REST.pack(0, flags, kind, position & self._mask, p.session_id, p.stream_id, term_id),
        )
        self.store_long(file_offset + 24, reserved_value)
        return file_offset

    def publish(self, file_offset: int, length: int) -> None:
        """Make the frame visible to readers."""
        # Order: the tail, the payload, and all earlier frames before the length.
        if memory_order.IS_WEAK:
            memory_order.barrier()
        self.store_int(file_offset, length)

    def pad(self, position: int, length: int) -> None:
        """Write a padding frame of ``length`` bytes in total."""
        self.publish(self.begin_frame(position, length, descriptor.UNFRAGMENTED, descriptor.PAD, 0), length)

    def blank(self, position: int, length: int) -> None:
        """Write zeroed padding over unpublished bytes, so that no old frame in them is ever read."""
        file_offset = self.begin_frame(position, length, descriptor.UNFRAGMENTED, descriptor.PAD, 0)
        self.fill_zero(file_offset + descriptor.HEADER_LENGTH, length - descriptor.HEADER_LENGTH)
        self.publish(file_offset, length)

    def whole_frame(self, position: int) -> tuple[int, int, int]:
        """Return (frame length, flags, type) of the published frame at ``position``; length 0 for none."""
        file_offset = self.offset_of(position)
        # Order: the length before the rest of the header, the reverse of the stores.
        length = self.ints[file_offset >> 2]
        if length < descriptor.HEADER_LENGTH:
            return 0, 0, 0
        if memory_order.IS_WEAK:
            memory_order.barrier()
        version, flags, kind, term_offset, session_id, stream_id, term_id = descriptor.HEADER_REST.unpack_from(
            self.bytes, file_offset + 4
        )
        offset = position & self._mask
        if length > self.term_length - offset or term_offset != offset:
            return 0, 0, 0
        if term_id != self.term_id(position) or version or kind > descriptor.DATA:
            return 0, 0, 0
        if session_id != self.parameters.session_id or stream_id != self.parameters.stream_id:
            return 0, 0, 0
        return length, flags, kind

    def frame(self, position: int, length: int, flags: int) -> Frame:
        """Return the frame at ``position``, given its frame length and flags."""
        file_offset = self.offset_of(position)
        data = self.bytes[file_offset + descriptor.HEADER_LENGTH : file_offset + length]
        return Frame(data, position, position + descriptor.align(length), self.longs[(file_offset + 24) >> 3], flags)

    def headers(self, begin: int, end: int) -> np.ndarray:
        """Return the slots of positions [begin, end), within one term, as an array of HEADER_DTYPE."""
        count = (end - begin) // descriptor.FRAME_ALIGNMENT
        return np.frombuffer(self.bytes, descriptor.HEADER_DTYPE, count, self.offset_of(begin))

    def close(self) -> None:
        """Close the file; frames still referenced keep the mapping until they are freed."""
        self.closed = True
        # A frame that is still referenced keeps its view, and with it the mapping, alive.
        for view in (self.longs, self.ints, self.bytes):
            with contextlib.suppress(BufferError):
                view.release()
        with contextlib.suppress(BufferError):
            self._map.close()


def create_file(path: Path, parameters: descriptor.Parameters, position: int) -> None:
    """Create a file, fully allocated and durable before its name appears. Raises FileExistsError, OSError."""
    if path.exists():
        raise FileExistsError(f"{path} exists")
    unfinished = path.with_name(path.name + ".new")
    try:
        with open(unfinished, "wb", opener=lambda path, flags: os.open(path, flags, 0o640)) as file:
            # A sparse file would raise SIGBUS on a full disk; allocation fails with OSError here instead.
            os.posix_fallocate(file.fileno(), 0, parameters.file_length)
            os.pwrite(file.fileno(), parameters.metadata(position), parameters.file_length - descriptor.METADATA_LENGTH)
            os.fsync(file.fileno())
        # Order: fsync the file, rename it, then sync the folder. Crash: only a `.new` file can be incomplete.
        os.rename(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def lock_file(path: Path) -> IO[bytes]:
    """Acquire the exclusive right to publish into ``path``, until the file object is closed or the process dies."""
    file = open(path, "rb")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise Busy(f"another process publishes into {path}") from None
    return file


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    folder_descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(folder_descriptor)
    finally:
        os.close(folder_descriptor)


def _read_parameters(file: int, size: int, path: Path, tolerant: bool) -> tuple[descriptor.Parameters, str]:
    if size < descriptor.file_length(descriptor.TERM_MIN_LENGTH, descriptor.PAGE_MIN_LENGTH):
        raise NotALogBuffer(f"{path} is not a log buffer: {size} bytes are too short")
    block = os.pread(file, descriptor.METADATA_LENGTH, size - descriptor.METADATA_LENGTH)
    parameters, problem = read_metadata(block, size)
    if parameters is None and tolerant:
        parameters = _readable_parameters(_Metadata(block), size)
    if parameters is None:
        raise NotALogBuffer(f"{path} is not a log buffer: {problem}")
    return parameters, problem


class _Metadata:
    """The fields in the metadata block of a file."""

    def __init__(self, block: bytes) -> None:
        self._block = block
        self.default_header: tuple[int, ...] = descriptor.HEADER.unpack_from(block, descriptor.DEFAULT_HEADER)

    def load(self, field: descriptor.Field) -> int:
        number: int = struct.unpack_from("<" + field.code, self._block, field.offset)[0]
        return number


def read_metadata(block: bytes, size: int) -> tuple[descriptor.Parameters | None, str]:
    """Parse 4,096 bytes of metadata for a file of ``size`` bytes; return None and the reason if they are invalid."""
    metadata = _Metadata(block)
    problem = _metadata_problem(metadata, size)
    if problem:
        return None, problem
    load = metadata.load
    parameters = descriptor.Parameters(
        term_length=load(descriptor.TERM_LENGTH),
        mtu=load(descriptor.MTU_LENGTH),
        session_id=metadata.default_header[5],
        stream_id=metadata.default_header[6],
        initial_term_id=load(descriptor.INITIAL_TERM_ID),
        kind=descriptor.Kind(load(descriptor.TYPE)),
        page_size=load(descriptor.PAGE_SIZE),
        correlation_id=load(descriptor.CORRELATION_ID),
        window=load(descriptor.PUBLICATION_WINDOW),
        sparse=bool(load(descriptor.SPARSE)),
    )
    return parameters, ""


def _readable_parameters(metadata: _Metadata, size: int) -> descriptor.Parameters | None:
    """Return parameters to walk the terms of a file with invalid metadata; None if the terms exceed the file.

    These are the checks of Aeron's LogBuffers, so LogInspector and ``penstock inspect`` open the same files. Fields
    that only a publisher needs have their defaults.
    """
    term_length = metadata.load(descriptor.TERM_LENGTH)
    if descriptor.geometry_problem(
        term_length, metadata.load(descriptor.PAGE_SIZE), descriptor.HEADER_LENGTH + descriptor.FRAME_ALIGNMENT
    ):
        return None
    if descriptor.PARTITIONS * term_length > size or size % 8:
        return None
    _, _, _, _, _, session_id, stream_id, *_ = metadata.default_header
    mtu = descriptor.HEADER_LENGTH + descriptor.FRAME_ALIGNMENT
    return descriptor.Parameters(term_length, mtu, session_id, stream_id, metadata.load(descriptor.INITIAL_TERM_ID))


def _metadata_problem(metadata: _Metadata, size: int) -> str | None:
    load, header = metadata.load, metadata.default_header
    term_length, page_size = load(descriptor.TERM_LENGTH), load(descriptor.PAGE_SIZE)
    problem = descriptor.geometry_problem(term_length, page_size, load(descriptor.MTU_LENGTH))
    if problem:
        return problem
    if descriptor.file_length(term_length, page_size) != size:
        return f"{size} bytes do not match terms of {term_length} bytes and pages of {page_size} bytes"
    if (
        load(descriptor.DEFAULT_HEADER_LENGTH) != descriptor.HEADER_LENGTH
        or header[3] != descriptor.DATA
        or header[1] != 0
    ):
        return "its default frame header is invalid"
    if load(descriptor.TYPE) > descriptor.Kind.IMAGE:
        return f"its type {load(descriptor.TYPE)} is unknown"
    if header[7] != load(descriptor.INITIAL_TERM_ID):
        return (
            f"its initial term id is {load(descriptor.INITIAL_TERM_ID)}, but its default frame header says {header[7]}"
        )
    if not 0 <= load(descriptor.PUBLICATION_WINDOW) <= term_length:
        return "its publication window is longer than a term"
    return None

"""The layout of an Aeron log buffer (LogBufferDescriptor and DataHeaderFlyweight of Aeron 1.51): metadata, frame
header, positions.

A file is three terms of equal length T and 4,096 bytes of metadata, all little-endian, rounded up to the page size;
the metadata is always the last 4,096 bytes. A position counts bytes from the start of the stream: ``position >>
log2(T)`` is the term count, and the partition of the term is that count modulo 3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

PARTITIONS: Final = 3
METADATA_LENGTH: Final = 4096
TERM_MIN_LENGTH: Final = 1 << 16
TERM_MAX_LENGTH: Final = 1 << 30
PAGE_MIN_LENGTH: Final = 1 << 12
PAGE_MAX_LENGTH: Final = 1 << 30
MAX_MESSAGE_LENGTH: Final = 1 << 24
"""Limit of Aeron: a longer term allows no longer message."""
MAX_TERM_COUNT: Final = (1 << 31) - 1
"""Count of the last term of a stream: term counts are signed 32-bit numbers."""
LONG_MAX: Final = (1 << 63) - 1

HEADER_LENGTH: Final = 32
FRAME_ALIGNMENT: Final = 32
BEGIN: Final = 0x80
END: Final = 0x40
EOS: Final = 0x20
REVOKED: Final = 0x10
UNFRAGMENTED: Final = BEGIN | END
PAD: Final = 0
DATA: Final = 1

HEADER: Final = struct.Struct("<iBBHiiiiq")
"""Frame length, version, flags, type, term offset, session, stream, term id, reserved value."""
HEADER_REST: Final = struct.Struct("<BBHiiii")
"""The header without the leading length, which is stored last, and without the trailing reserved value."""
HEADER_DTYPE: Final = np.dtype(
    [
        ("length", "<i4"),
        ("version", "u1"),
        ("flags", "u1"),
        ("type", "<u2"),
        ("term_offset", "<i4"),
        ("session_id", "<i4"),
        ("stream_id", "<i4"),
        ("term_id", "<i4"),
        ("reserved_value", "<i8"),
    ]
)
"""A frame header. Frames begin at multiples of 32, so a term is an array of T / 32 possible headers."""


class Kind(IntEnum):
    """Kind of writer of a log buffer: the type byte of the metadata."""

    CONCURRENT = 0
    EXCLUSIVE = 1
    IMAGE = 2


class Field(NamedTuple):
    """A metadata field: its offset from the start of the metadata, and its struct code."""

    name: str
    offset: int
    code: str


TAIL_COUNTERS: Final = tuple(Field(f"tail_counter_{i}", 8 * i, "q") for i in range(PARTITIONS))
ACTIVE_TERM_COUNT: Final = Field("active_term_count", 0x18, "i")
END_OF_STREAM_POSITION: Final = Field("end_of_stream_position", 0x80, "q")
IS_CONNECTED: Final = Field("is_connected", 0x88, "i")
ACTIVE_TRANSPORT_COUNT: Final = Field("active_transport_count", 0x8C, "i")
CORRELATION_ID: Final = Field("correlation_id", 0x100, "q")
INITIAL_TERM_ID: Final = Field("initial_term_id", 0x108, "i")
DEFAULT_HEADER_LENGTH: Final = Field("default_frame_header_length", 0x10C, "i")
MTU_LENGTH: Final = Field("mtu_length", 0x110, "i")
TERM_LENGTH: Final = Field("term_length", 0x114, "i")
PAGE_SIZE: Final = Field("page_size", 0x118, "i")
PUBLICATION_WINDOW: Final = Field("publication_window_length", 0x11C, "i")
RECEIVER_WINDOW: Final = Field("receiver_window_length", 0x120, "i")
SOCKET_SNDBUF: Final = Field("socket_sndbuf_length", 0x124, "i")
OS_DEFAULT_SNDBUF: Final = Field("os_default_socket_sndbuf_length", 0x128, "i")
OS_MAX_SNDBUF: Final = Field("os_max_socket_sndbuf_length", 0x12C, "i")
SOCKET_RCVBUF: Final = Field("socket_rcvbuf_length", 0x130, "i")
OS_DEFAULT_RCVBUF: Final = Field("os_default_socket_rcvbuf_length", 0x134, "i")
OS_MAX_RCVBUF: Final = Field("os_max_socket_rcvbuf_length", 0x138, "i")
MAX_RESEND: Final = Field("max_resend", 0x13C, "i")
DEFAULT_HEADER: Final = 0x140
"""Offset of the default frame header: 128 bytes are reserved for it, 32 used."""
ENTITY_TAG: Final = Field("entity_tag", 0x1C0, "q")
RESPONSE_CORRELATION_ID: Final = Field("response_correlation_id", 0x1C8, "q")
LINGER_TIMEOUT: Final = Field("linger_timeout_ns", 0x1D0, "q")
UNTETHERED_WINDOW_LIMIT_TIMEOUT: Final = Field("untethered_window_limit_timeout_ns", 0x1D8, "q")
UNTETHERED_RESTING_TIMEOUT: Final = Field("untethered_resting_timeout_ns", 0x1E0, "q")
GROUP: Final = Field("group", 0x1E8, "B")
IS_RESPONSE: Final = Field("is_response", 0x1E9, "B")
REJOIN: Final = Field("rejoin", 0x1EA, "B")
RELIABLE: Final = Field("reliable", 0x1EB, "B")
SPARSE: Final = Field("sparse", 0x1EC, "B")
SIGNAL_EOS: Final = Field("signal_eos", 0x1ED, "B")
SPIES_SIMULATE_CONNECTION: Final = Field("spies_simulate_connection", 0x1EE, "B")
TETHER: Final = Field("tether", 0x1EF, "B")
IS_REVOKED: Final = Field("is_publication_revoked", 0x1F0, "B")
TYPE: Final = Field("type", 0x1F1, "B")
UNTETHERED_LINGER_TIMEOUT: Final = Field("untethered_linger_timeout_ns", 0x1F4, "q")  # Aeron's layout: not 8-aligned
FIELDS: Final = (*TAIL_COUNTERS, *(value for value in list(globals().values()) if isinstance(value, Field)))
_OPTIONS: Final = tuple(each for each in FIELDS if RECEIVER_WINDOW.offset <= each.offset and each is not TYPE)


@dataclass(frozen=True)
class Parameters:
    """Properties that are fixed for the life of a log buffer. Lengths in bytes, times in nanoseconds.

    The defaults are those Aeron's driver uses for an IPC publication. Raises ValueError for lengths that the layout
    forbids.
    """

    term_length: int
    mtu: int
    session_id: int
    stream_id: int
    initial_term_id: int
    kind: Kind = Kind.EXCLUSIVE
    page_size: int = PAGE_MIN_LENGTH
    correlation_id: int = 0
    window: int = 0
    """Publication window; 0 means half a term, as in Aeron."""
    sparse: bool = False
    fields: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Metadata fields that differ from their defaults, by name: ``{"entity_tag": 77}``."""

    def __post_init__(self) -> None:
        problem = geometry_problem(self.term_length, self.page_size, self.mtu)
        if problem:
            raise ValueError(problem)
        if not 0 <= self.window <= self.term_length:
            raise ValueError(f"window of {self.window} bytes is longer than a term")
        unknown = set(self.fields) - {option.name for option in _OPTIONS}
        if unknown:
            raise ValueError(f"unknown metadata options: {', '.join(sorted(unknown))}")

    @property
    def file_length(self) -> int:
        return file_length(self.term_length, self.page_size)

    def metadata(self, position: int = 0) -> bytes:
        """Return the 4,096 bytes for a buffer whose first frame is at ``position``."""
        block = bytearray(METADATA_LENGTH)
        for field_of_block, number in self._field_values(position).items():
            struct.pack_into("<" + field_of_block.code, block, field_of_block.offset, number)
        offset = position & (self.term_length - 1)
        default = (0, 0, UNFRAGMENTED, DATA, offset, self.session_id, self.stream_id, self.initial_term_id, 0)
        HEADER.pack_into(block, DEFAULT_HEADER, *default)
        return bytes(block)

    def _field_values(self, position: int) -> dict[Field, int]:
        return (
            self._tail_values(position)
            | {
                END_OF_STREAM_POSITION: LONG_MAX,
                CORRELATION_ID: self.correlation_id,
                INITIAL_TERM_ID: self.initial_term_id,
                DEFAULT_HEADER_LENGTH: HEADER_LENGTH,
                MTU_LENGTH: self.mtu,
                TERM_LENGTH: self.term_length,
                PAGE_SIZE: self.page_size,
                PUBLICATION_WINDOW: self.window or self.term_length // 2,
                MAX_RESEND: 16,
                ENTITY_TAG: -1,
                RESPONSE_CORRELATION_ID: -1,
                LINGER_TIMEOUT: 5_000_000_000,
                UNTETHERED_WINDOW_LIMIT_TIMEOUT: 5_000_000_000,
                UNTETHERED_RESTING_TIMEOUT: 10_000_000_000,
                SPARSE: int(self.sparse),
                SIGNAL_EOS: 1,
                TYPE: int(self.kind),
                UNTETHERED_LINGER_TIMEOUT: 5_000_000_000,
            }
            | {option: self.fields[option.name] for option in _OPTIONS if option.name in self.fields}
        )

    def _tail_values(self, position: int) -> dict[Field, int]:
        count = position >> position_bits(self.term_length)
        offset = position & (self.term_length - 1)
        tails = {TAIL_COUNTERS[count % PARTITIONS]: pack_tail(int32(self.initial_term_id + count), offset)}
        # As in Aeron, the next two partitions carry the ids of the terms that they held before.
        for ahead in (1, 2):
            term_id = int32(self.initial_term_id + count + ahead - PARTITIONS)
            tails[TAIL_COUNTERS[(count + ahead) % PARTITIONS]] = pack_tail(term_id, 0)
        return tails | {ACTIVE_TERM_COUNT: count}


def geometry_problem(term_length: int, page_size: int, mtu: int) -> str | None:
    """Return why the layout forbids these lengths, in one line; None if it allows them."""
    if not _is_power_of_two(term_length, TERM_MIN_LENGTH, TERM_MAX_LENGTH):
        return f"term length {term_length} is not a power of two from 64 KiB to 1 GiB"
    if not _is_power_of_two(page_size, PAGE_MIN_LENGTH, PAGE_MAX_LENGTH):
        return f"page size {page_size} is not a power of two from 4 KiB to 1 GiB"
    if not HEADER_LENGTH < mtu <= term_length or mtu % FRAME_ALIGNMENT:
        return f"MTU {mtu} is not a multiple of 32 from 64 to the term length"
    return None


def _is_power_of_two(number: int, least: int, most: int) -> bool:
    return least <= number <= most and number & (number - 1) == 0


def align(length: int, alignment: int = FRAME_ALIGNMENT) -> int:
    """Round ``length`` up to a multiple of ``alignment`` (a power of two)."""
    return (length + alignment - 1) & -alignment


def file_length(term_length: int, page_size: int) -> int:
    """Return the length of a log buffer file, in whole pages."""
    return align(PARTITIONS * term_length + METADATA_LENGTH, page_size)


def int32(number: int) -> int:
    """Wrap a number to a signed 32-bit integer, as term ids wrap."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def pack_tail(term_id: int, offset: int) -> int:
    """Return a tail counter: term id in the upper 32 bits, offset (which may exceed T) in the lower."""
    return (int32(term_id) << 32) | (offset & 0xFFFFFFFF)


def tail_term_id(raw_tail: int) -> int:
    """Return the term id of a raw tail counter."""
    return raw_tail >> 32


def tail_offset(raw_tail: int, term_length: int) -> int:
    """Return the offset of a raw tail counter, at most the term length."""
    return min(raw_tail & 0xFFFFFFFF, term_length)


def position_bits(term_length: int) -> int:
    """Return the shift of the term count in a position."""
    return term_length.bit_length() - 1


def position_of(term_id: int, offset: int, initial_term_id: int, term_length: int) -> int:
    """Return the position of an offset in a term; negative for a partition that was never used."""
    return (int32(term_id - initial_term_id) << position_bits(term_length)) + offset


def max_position(term_length: int) -> int:
    """Return the position at which a stream with terms of this length ends."""
    return term_length * (MAX_TERM_COUNT + 1)


def max_message_length(term_length: int) -> int:
    """Return the length of the longest message, fragmented if necessary."""
    return min(term_length // 8, MAX_MESSAGE_LENGTH)


def fragmented_length(length: int, mtu: int) -> int:
    """Return the bytes that a message takes in the term when cut into frames of ``mtu`` bytes."""
    full_frames, rest = divmod(length, mtu - HEADER_LENGTH)
    return full_frames * mtu + (align(rest + HEADER_LENGTH) if rest else 0)


def mtu_for(largest_message: int) -> int:
    """Return the smallest MTU that fits a message of that length in one frame."""
    return align(largest_message + HEADER_LENGTH)


def valid_headers(
    headers: np.ndarray, first_offset: int, term_id: int, session_id: int, stream_id: int, term_length: int
) -> np.ndarray:
    """Report which of ``headers`` (HEADER_DTYPE, slots from ``first_offset`` on) begin a whole frame: bool, same
    shape.
    """
    offsets = np.arange(first_offset, first_offset + FRAME_ALIGNMENT * len(headers), FRAME_ALIGNMENT, dtype=np.int64)
    lengths = headers["length"]
    is_valid: np.ndarray = (headers["term_id"] == term_id) & (headers["term_offset"] == offsets)
    is_valid &= (lengths >= HEADER_LENGTH) & (lengths <= term_length - offsets)
    is_valid &= (headers["session_id"] == session_id) & (headers["stream_id"] == stream_id)
    is_valid &= (headers["type"] <= DATA) & (headers["version"] == 0)
    return is_valid

"""Sums by which any SQL engine compares the table with its proofs (docs/proof-sql.md).

A hash of a uuid is the first 15 hexadecimal digits of its MD5 as a number: every engine has MD5, and 60 bits fit a
signed 64-bit integer. Sums are kept per slice of SLICE_OFFSETS offsets of a topic. They are additive, so proofs,
deletions and backfills of a slice add up in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.rows.engine import text_bytes
from penstock.qualified_names import MARK

SLICE_OFFSETS = 100_000
"""Offsets of a slice: a difference is found in one slice, and a billion messages have 10,000 of them."""
ROWS_AT_ONCE = 32_768
"""Rows hashed together: their words fit the processor's cache, and a call on columns costs little per row."""
Words = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]
_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_CONSTANTS = [np.uint32(int(abs(math.sin(step + 1)) * 2**32)) for step in range(64)]
_SHIFTS = [(7, 12, 17, 22)[step % 4] for step in range(16)]
_SHIFTS += [(5, 9, 14, 20)[step % 4] for step in range(16)]
_SHIFTS += [(4, 11, 16, 23)[step % 4] for step in range(16)]
_SHIFTS += [(6, 10, 15, 21)[step % 4] for step in range(16)]
_WORD_OF_STEP = [
    *range(16),
    *((5 * step + 1) % 16 for step in range(16)),
    *((3 * step + 5) % 16 for step in range(16)),
    *((7 * step) % 16 for step in range(16)),
]
_BLOCK_BYTES, _LENGTH_BYTES = 64, 8


def uuid_hashes(uuids: pa.Array[Any]) -> Hashes:
    """Return the hash of each uuid; 0 for null."""
    parts = [_hash_chunk(uuids.slice(start, ROWS_AT_ONCE)) for start in range(0, len(uuids), ROWS_AT_ONCE)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _hash_chunk(uuids: pa.Array[Any]) -> Hashes:
    offsets, content = text_bytes(uuids)
    starts = offsets.astype(np.int64) - int(offsets[0])
    lengths = np.diff(starts)
    length = int(lengths[0])
    # Fast path: uuids have one length, so their bytes are a matrix of words, and most words are the same in each row.
    if not uuids.null_count and length % 4 == 0 and length + _LENGTH_BYTES < _BLOCK_BYTES and (lengths == length).all():
        texts = np.ascontiguousarray(content.view("<u4").reshape(len(uuids), length // 4).T)
        fixed = [np.uint32(0x80), *[np.uint32(0)] * (13 - length // 4), np.uint32(8 * length), np.uint32(0)]
        return _heads(_md5_block([*texts, *fixed], _start(len(uuids))))
    blocks = (lengths + _LENGTH_BYTES) // _BLOCK_BYTES + 1
    hashed = np.zeros(len(uuids), np.uint64)
    # Limit: texts of equally many blocks together, so that a long one does not widen the memory of all others.
    for count in np.unique(blocks).tolist():
        rows = np.flatnonzero(blocks == count)
        hashed[rows] = _hash_blocks(content, starts[rows], lengths[rows], count)
    if uuids.null_count:
        hashed[uuids.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashed


def _hash_blocks(content: Any, starts: npt.NDArray[Any], lengths: npt.NDArray[Any], blocks: int) -> Hashes:
    """Return the hashes of texts that have the same number of blocks."""
    rows = len(starts)
    padded = np.zeros((rows, blocks * _BLOCK_BYTES), np.uint8)
    positions = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    padded[np.repeat(np.arange(rows), lengths), positions] = content[np.repeat(starts, lengths) + positions]
    padded[np.arange(rows), lengths] = 0x80
    words = padded.view("<u4")
    words[:, -2] = lengths * 8
    state = _start(rows)
    for block in range(blocks):
        state = _md5_block([*np.ascontiguousarray(words[:, 16 * block : 16 * (block + 1)].T)], state)
    return _heads(state)


def _start(rows: int) -> list[Words]:
    return [np.full(rows, word, np.uint32) for word in _START]


def _heads(state: Sequence[Words]) -> Hashes:
    """Return the first 60 bits of each digest."""
    high, low = (word.byteswap().astype(np.uint64) for word in state[:2])
    return (high << np.uint64(28)) | (low >> np.uint64(4))


def _md5_block(words: Sequence[Words | np.uint32], state: Sequence[Words]) -> list[Words]:
    """Apply the 64 steps of MD5 (RFC 1321) to a block of each row; ``words``: 16 columns, or one number for all rows.

    Return the new state.
    """
    a, b, c, d = (word.copy() for word in state)
    mixed, shifted = np.empty_like(a), np.empty_like(a)
    for step in range(64):
        # All operations write into existing columns: allocating them would cost half of the time.
        if step < 16:
            np.bitwise_xor(c, d, out=mixed)
            np.bitwise_and(mixed, b, out=mixed)
            np.bitwise_xor(mixed, d, out=mixed)
        elif step < 32:
            np.bitwise_xor(b, c, out=mixed)
            np.bitwise_and(mixed, d, out=mixed)
            np.bitwise_xor(mixed, c, out=mixed)
        elif step < 48:
            np.bitwise_xor(b, c, out=mixed)
            np.bitwise_xor(mixed, d, out=mixed)
        else:
            np.bitwise_not(d, out=mixed)
            np.bitwise_or(mixed, b, out=mixed)
            np.bitwise_xor(mixed, c, out=mixed)
        np.add(mixed, a, out=mixed)
        word = words[_WORD_OF_STEP[step]]
        if isinstance(word, np.ndarray):
            np.add(mixed, word, out=mixed)
            np.add(mixed, _CONSTANTS[step], out=mixed)
        else:
            np.add(mixed, np.uint32((int(word) + int(_CONSTANTS[step])) & 0xFFFFFFFF), out=mixed)
        np.left_shift(mixed, np.uint32(_SHIFTS[step]), out=shifted)
        np.right_shift(mixed, np.uint32(32 - _SHIFTS[step]), out=mixed)
        np.bitwise_or(mixed, shifted, out=mixed)
        np.add(mixed, b, out=mixed)
        a, d, c, b, mixed = d, c, b, mixed, a
    return [old + new for old, new in zip(state, (a, b, c, d), strict=True)]


def with_partitions(topics: Any, partitions: Any) -> Any:
    """Return the topic of each row, with the partition for rows of Kafka (``events/0``)."""
    # Fast path: rows of the log have no partition, so their dictionary stays as it is.
    if partitions.null_count == len(partitions):
        return topics
    plain = topics.cast(pa.string())
    named: Any = pc.binary_join_element_wise(plain, partitions.cast(pa.string()), MARK)
    return pc.coalesce(named, plain).dictionary_encode()


SliceKey = tuple[str, int]
"""Topic (``events/0`` for a partition of Kafka) and number of the slice."""


@dataclass(slots=True)
class SliceSums:
    """Sums of the rows of one slice: number by kind, sum of offsets, sum of the hashes of uuids."""

    kinds: dict[str, int] = field(default_factory=dict)
    offsets: int = 0
    uuid_hashes: int = 0

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(self.kinds.values())

    def absorb(self, other: SliceSums, sign: int = 1) -> None:
        """Add other sums; with a ``sign`` of -1 subtract them."""
        for kind, rows in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + sign * rows
        self.offsets += sign * other.offsets
        self.uuid_hashes += sign * other.uuid_hashes


class RowSums(dict[SliceKey, SliceSums]):
    """Sums of rows by topic and slice."""

    def add_rows(self, topics: Any, offsets: npt.NDArray[np.int64], uuids: pa.Array[Any] | None, kind: str) -> None:
        """Add rows of one kind. ``topics``: a column of texts; ``uuids``: None if no row has one."""
        if not len(offsets):
            return
        hashed = None if uuids is None else uuid_hashes(uuids)
        first = topics[0]
        # Fast path: rows of one topic in the order of their offsets, as a task reads them.
        if (offsets[1:] >= offsets[:-1]).all() and pc.all(pc.equal(topics, first)).as_py():
            names = [first.as_py()]
            numbers = np.arange(offsets[0] // SLICE_OFFSETS, offsets[-1] // SLICE_OFFSETS + 1)
            starts = np.searchsorted(offsets, numbers * SLICE_OFFSETS)
            is_filled = np.diff(np.append(starts, len(offsets))) > 0
            starts, slices = starts[is_filled], numbers[is_filled]
            codes = np.zeros(len(starts), np.int64)
        else:
            encoded = topics if pa.types.is_dictionary(topics.type) else pc.dictionary_encode(topics)
            names, code_of_row = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
            slice_of_row = offsets // SLICE_OFFSETS
            order = np.lexsort((slice_of_row, code_of_row))
            offsets, hashed = offsets[order], None if hashed is None else hashed[order]
            code_of_row, slice_of_row = code_of_row[order], slice_of_row[order]
            changes = (code_of_row[1:] != code_of_row[:-1]) | (slice_of_row[1:] != slice_of_row[:-1])
            starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changes) + 1])
            codes, slices = code_of_row[starts], slice_of_row[starts]
        counts = np.diff(np.append(starts, len(offsets))).tolist()
        offset_sums = _sums(offsets.astype(np.uint64), starts)
        hash_sums = [0] * len(starts) if hashed is None else _sums(hashed, starts)
        for index, (code, number) in enumerate(zip(codes.tolist(), slices.tolist(), strict=True)):
            sums = SliceSums({kind: counts[index]}, offset_sums[index], hash_sums[index])
            self.setdefault((names[code], number), SliceSums()).absorb(sums)

    def absorb(self, other: Mapping[SliceKey, SliceSums], sign: int = 1) -> None:
        """Add other sums."""
        for key, sums in other.items():
            self.setdefault(key, SliceSums()).absorb(sums, sign)

    def of_topic(self, topic: str) -> RowSums:
        """Return the sums of one topic."""
        return RowSums({key: sums for key, sums in self.items() if key[0] == topic})

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(sums.rows for sums in self.values())

    def document(self) -> list[dict[str, Any]]:
        """Return JSON-ready fields. Sums are texts: readers of JSON round numbers beyond 53 bits."""
        return [
            {
                "topic": topic,
                "slice": number,
                "rows": sums.kinds,
                "offsets": str(sums.offsets),
                "uuid_hashes": str(sums.uuid_hashes),
            }
            for (topic, number), sums in sorted(self.items())
        ]

    @classmethod
    def from_document(cls, entries: Iterable[Mapping[str, Any]]) -> RowSums:
        """Read the fields of ``document``. Raises KeyError, TypeError or ValueError."""
        sums = cls()
        for entry in entries:
            kinds = {str(kind): int(rows) for kind, rows in entry["rows"].items()}
            read = SliceSums(kinds, int(entry["offsets"]), int(entry["uuid_hashes"]))
            sums.setdefault((str(entry["topic"]), int(entry["slice"])), SliceSums()).absorb(read)
        return sums


def _sums(column: npt.NDArray[np.uint64], starts: npt.NDArray[np.int64]) -> list[int]:
    # Sums of halves cannot overflow: a batch of rows has less than 2^32.
    high = np.add.reduceat(column >> np.uint64(32), starts).tolist()
    low = np.add.reduceat(column & np.uint64(0xFFFFFFFF), starts).tolist()
    return [(upper << 32) + lower for upper, lower in zip(high, low, strict=True)]


NO_VIOLATIONS: Mapping[str, int] = {}


def commit_metadata(
    batch: int,
    landed_at: int,
    ranges: Mapping[str, Sequence[int]],
    sums: RowSums,
    violations: Mapping[str, int] = NO_VIOLATIONS,
    *,
    relands: bool = False,
) -> dict[str, Any]:
    """Return a commit's metadata about its batch: ranges of offsets by topic, rows by kind, and sums.

    ``landed_at``: the column of all its rows, in microseconds. ``violations``: rows by rule of a typed table's contract
    whose value is in ``rest`` (``contract.order.amount.min``). ``relands``: some rows landed before and were lost.
    """
    kinds: dict[str, int] = {}
    for slice_sums in sums.values():
        for kind, rows in slice_sums.kinds.items():
            kinds[kind] = kinds.get(kind, 0) + rows
    plain_ranges = {topic: list(span) for topic, span in sorted(ranges.items())}
    described: dict[str, Any] = {"batch": batch, "landed_at": landed_at, "ranges": plain_ranges}
    if relands:
        described["relands"] = True
    if violations:
        described["violations"] = dict(sorted(violations.items()))
    return {**described, "rows": kinds, "sums": sums.document()}

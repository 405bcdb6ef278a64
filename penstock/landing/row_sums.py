"""Sums by which any SQL engine compares the table with its proofs (docs/proof-sql.md).

A hash of a uuid is the first 15 hexadecimal digits of its MD5 as a number: every engine has MD5, and 60 bits fit a
signed 64-bit integer. Sums are kept per slice of SLICE_OFFSETS offsets of a topic. They are additive, so proofs,
deletions and backfills of a slice add up in any order.

With ``pipeline.proof = "rows"`` there are two more sums: of the hashes of whole rows, and of these hashes times the
row's position in its slice. If one row of a slice was altered, the quotient of the two differences is its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.landing.md5_columns import text_hashes
from penstock.landing.row_hashes import RowHashes
from penstock.qualified_names import MARK

ROW_SUMS = ("row_hashes", "row_positions")
"""Names of the sums that only hashed rows have."""
SLICE_OFFSETS = 100_000
"""Offsets of a slice: a difference is found in one slice, and a billion messages have 10,000 of them."""


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
    """Sums of the rows of one slice: number by kind, sum of offsets, sum of the hashes of uuids.

    ``row_hashes``: sum of the hashes of whole rows, ``row_positions``: sum of these hashes, each times the position of
    its row in the slice. Both are None if a part of the rows is not hashed.
    """

    kinds: dict[str, int] = field(default_factory=dict)
    offsets: int = 0
    uuid_hashes: int = 0
    row_hashes: int | None = 0
    row_positions: int | None = 0

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
        self.row_hashes = _plus(self.row_hashes, other.row_hashes, sign)
        self.row_positions = _plus(self.row_positions, other.row_positions, sign)


class RowSums(dict[SliceKey, SliceSums]):
    """Sums of rows by topic and slice."""

    def add_rows(
        self,
        topics: Any,
        offsets: npt.NDArray[np.int64],
        uuids: pa.Array[Any] | None,
        kind: str,
        row_hashes: RowHashes | None = None,
    ) -> None:
        """Add rows of one kind. ``topics``: a column of texts; ``uuids``: None if no row has one."""
        if not len(offsets):
            return
        hashed = None if uuids is None else text_hashes(uuids)
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
            row_hashes = None if row_hashes is None else row_hashes[order]
            code_of_row, slice_of_row = code_of_row[order], slice_of_row[order]
            changes = (code_of_row[1:] != code_of_row[:-1]) | (slice_of_row[1:] != slice_of_row[:-1])
            starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changes) + 1])
            codes, slices = code_of_row[starts], slice_of_row[starts]
        counts = np.diff(np.append(starts, len(offsets))).tolist()
        offset_sums = _sums(offsets.astype(np.uint64), starts)
        hash_sums = [0] * len(starts) if hashed is None else _sums(hashed, starts)
        no_sums: list[int | None] = [None] * len(starts)
        row_sums = no_sums if row_hashes is None else _sums(row_hashes, starts)
        position_sums = no_sums if row_hashes is None else _position_sums(row_hashes, offsets % SLICE_OFFSETS, starts)
        for index, (code, number) in enumerate(zip(codes.tolist(), slices.tolist(), strict=True)):
            sums = SliceSums(
                {kind: counts[index]}, offset_sums[index], hash_sums[index], row_sums[index], position_sums[index]
            )
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

    @property
    def are_hashed(self) -> bool:
        """Whether whole rows are in the sums."""
        return all(sums.row_hashes is not None for sums in self.values())

    def document(self) -> list[dict[str, Any]]:
        """Return JSON-ready fields. Sums are texts: readers of JSON round numbers beyond 53 bits."""
        return [
            {
                "topic": topic,
                "slice": number,
                "rows": sums.kinds,
                "offsets": str(sums.offsets),
                "uuid_hashes": str(sums.uuid_hashes),
                **({} if sums.row_hashes is None else {"row_hashes": str(sums.row_hashes)}),
                **({} if sums.row_positions is None else {"row_positions": str(sums.row_positions)}),
            }
            for (topic, number), sums in sorted(self.items())
        ]

    @classmethod
    def from_document(cls, entries: Iterable[Mapping[str, Any]]) -> RowSums:
        """Read the fields of ``document``. Raises KeyError, TypeError or ValueError."""
        sums = cls()
        for entry in entries:
            kinds = {str(kind): int(rows) for kind, rows in entry["rows"].items()}
            of_rows = (None if entry.get(name) is None else int(entry[name]) for name in ROW_SUMS)
            read = SliceSums(kinds, int(entry["offsets"]), int(entry["uuid_hashes"]), *of_rows)
            sums.setdefault((str(entry["topic"]), int(entry["slice"])), SliceSums()).absorb(read)
        return sums


def _plus(total: int | None, added: int | None, sign: int) -> int | None:
    return None if total is None or added is None else total + sign * added


def _position_sums(hashes: RowHashes, positions: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> list[int]:
    # Limit: products of 24 bits of a hash and 17 of a position, of fewer than 2^22 rows, fit 63 bits.
    digits = (hashes & 0xFFFFFF, hashes >> 24 & 0xFFFFFF, hashes >> 48)
    sums = [np.add.reduceat(digit * positions, starts).tolist() for digit in digits]
    return [low + (middle << 24) + (high << 48) for low, middle, high in zip(*sums, strict=True)]


def _sums(column: npt.NDArray[np.uint64] | npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> list[int]:
    # Sums of halves cannot overflow: a batch of rows has less than 2^32.
    number = column.dtype.type
    high = np.add.reduceat(column >> number(32), starts).tolist()
    low = np.add.reduceat(column & number(0xFFFFFFFF), starts).tolist()
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

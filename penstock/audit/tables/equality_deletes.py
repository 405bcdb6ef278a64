"""Equality deletes of Iceberg: they delete rows by the contents of some columns, as Flink's upserts do.

Invariant: a delete applies to rows of files that were added before it, which have a smaller sequence number. The key of
a row and the newest deletion of this key decide, however many commits have deleted it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from penstock.audit.tables.table import TableUnreadable

MAX_DELETED_KEYS = 10_000_000
"""Limit: keys of a table in memory, and keys that apply to one file; some 130 bytes each at most."""
Numbers = npt.NDArray[np.int64]
Columns = Sequence[Any]
"""Arrays of the equality columns, in the order of their ids."""


class DeletedKeys:
    """The keys that equality deletes name, and the sequence number of the newest delete of each."""

    def __init__(self, deletes: Iterable[tuple[Columns, int]]) -> None:
        """Hold the keys in parts of files, each with the sequence number of its file."""
        parts = [(columns, number) for columns, number in deletes if len(columns[0])]
        columns = [_joined(arrays) for arrays in zip(*(columns for columns, _ in parts), strict=True)]
        self._contents = [pc.unique(column) for column in columns]
        """The distinct contents of each column."""
        self._pairs: list[Numbers] = []
        """For each column the distinct combinations with the columns before it, as one number each, sorted."""
        numbers = np.repeat([number for _, number in parts], [len(arrays[0]) for arrays, _ in parts]).astype(np.int64)
        keys = np.zeros_like(numbers)
        for index, column in enumerate(columns):
            pairs, keys = np.unique(self._combine(keys, index, self._codes(index, column)), return_inverse=True)
            self._pairs.append(pairs)
        self._newest = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
        np.maximum.at(self._newest, keys, numbers)

    def newest_deletes(self, columns: Columns) -> Numbers:
        """Return the sequence number of the newest delete of each row's key, shape (n,); -1 if nothing deletes it."""
        keys = np.zeros(len(columns[0]), np.int64)
        if not len(self._newest):
            return keys - 1
        is_deleted = np.ones(len(keys), np.bool_)
        for index, (column, pairs) in enumerate(zip(columns, self._pairs, strict=True)):
            codes = self._codes(index, column)
            combined = self._combine(keys, index, codes)
            keys = np.minimum(np.searchsorted(pairs, combined), len(pairs) - 1)
            is_deleted &= (codes >= 0) & (pairs[keys] == combined)
        return np.where(is_deleted, self._newest[keys], -1)

    def keep_mask(self, columns: Columns, sequence_number: int) -> Any:
        """Return whether each row of a file with a sequence number is not deleted."""
        return pa.array(self.newest_deletes(columns) <= sequence_number)

    def _combine(self, keys: Numbers, index: int, codes: Numbers) -> Numbers:
        # Limit: both factors are at most MAX_DELETED_KEYS, so the product fits into 64 bits.
        return keys * len(self._contents[index]) + codes

    def _codes(self, index: int, column: Any) -> Numbers:
        """Return the positions of contents among the distinct ones, -1 for others. A null is equal to a null."""
        contents = self._contents[index]
        positions: Any = pc.fill_null(pc.index_in(column.cast(contents.type), contents), -1)
        codes: Numbers = positions.cast(pa.int64()).to_numpy()
        return codes


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file of equality deletes with its sequence number."""

    sequence_number: int
    file: DataFile


class EqualityDeletes:
    """The equality deletes of a partition, or of all, by the columns ``field_ids``."""

    def __init__(
        self,
        field_ids: tuple[int, ...],
        files: Sequence[DeleteFile],
        read: Callable[[DataFile, tuple[int, ...]], Iterator[Columns]],
    ) -> None:
        """Hold delete files, whose columns ``read`` yields."""
        self.field_ids, self._read = field_ids, read
        self._files = sorted(files, key=lambda delete: (delete.sequence_number, delete.file.file_path), reverse=True)
        self._numbers = [-delete.sequence_number for delete in self._files]
        digest, self._digests = 0, [0]
        for delete in self._files:
            digest = hash((digest, delete.file.file_path))
            self._digests.append(digest)

    def identity_for(self, sequence_number: int) -> Hashable:
        """Return a number that identifies the deletes of rows with a sequence number; 0 if there are none."""
        # Limit: a digest instead of names: each file may have as many deletes as there are commits.
        return self._digests[bisect_right(self._numbers, -sequence_number - 1)]

    @cached_property
    def count(self) -> int:
        """The number of deletes, an upper bound of the number of keys."""
        return sum(delete.file.record_count for delete in self._files)

    def read_keys(self) -> DeletedKeys:
        """Return the keys. Raises TableUnreadable."""
        return DeletedKeys(
            (columns, delete.sequence_number)
            for delete in self._files
            for columns in self._read(delete.file, self.field_ids)
        )


class KeysInMemory:
    """The keys of a table's equality deletes, at most MAX_DELETED_KEYS; the least recently used are evicted."""

    def __init__(self) -> None:
        # Fast path: deletes of a version that is no longer searched are evicted at once.
        self._keys: WeakKeyDictionary[EqualityDeletes, DeletedKeys] = WeakKeyDictionary()

    def load_keys(self, applied: Sequence[EqualityDeletes]) -> list[DeletedKeys]:
        """Return the keys of all deletes that apply to a file. Raises TableUnreadable if they exceed the limit."""
        count = sum(deletes.count for deletes in applied)
        if count > MAX_DELETED_KEYS:
            raise TableUnreadable(
                f"{count:,} rows of equality deletes in one partition exceed the limit of {MAX_DELETED_KEYS:,}; "
                "compact the table"
            )
        for deletes in applied:
            if deletes in self._keys:
                self._keys[deletes] = self._keys.pop(deletes)
        for deletes in applied:
            if deletes not in self._keys:
                self._evict_keys(deletes.count)
                self._keys[deletes] = deletes.read_keys()
        return [self._keys[deletes] for deletes in applied]

    def _evict_keys(self, count: int) -> None:
        # The keys that the same file needs were used last, and fit into the limit with the new ones.
        while self._keys and count + sum(deletes.count for deletes in self._keys) > MAX_DELETED_KEYS:
            del self._keys[next(iter(self._keys))]


def _joined(arrays: Sequence[Any]) -> Any:
    # PyIceberg reads a text column of one file as strings, and of another as large strings.
    return pa.chunked_array([array.cast(arrays[0].type) for array in arrays])

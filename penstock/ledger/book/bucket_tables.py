"""Counts by source and bucket in columns: one array of buckets for each source, and one of numbers for each name.

A count in a dictionary of dictionaries takes 400 bytes, and 8 bytes for each number here. The book of a year with
thousands of listeners fits in memory only so.

Invariant: a copy is a snapshot. Both tables share the columns of a source until one of them writes to it.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self, TypeVar

from penstock.counts import Counts, SourceBucket
from penstock.ledger.book.daily_rollup import DAY, month_limit, month_of, rolled_bucket
from penstock.ledger.posts import LARGEST, SUM

Value = TypeVar("Value")
MAX_COLUMNS = 64
"""Limit for the columns of a source: each takes 8 bytes in each bucket, also where its name does not occur."""
MAX_SINGLE_INSERTIONS = 128
"""Number of buckets up to which each is inserted alone; more are merged, because an insertion moves all later ones."""
ROWS = "rows"
"""Name of the only column of a table of rows."""


@dataclass(slots=True)
class SourceColumns:
    """The counts of one source. ``buckets`` ascend, and each column has one number for each of them.

    Counts in ``further`` are added to the columns: names beyond ``MAX_COLUMNS``, and sums over 64 bits. Sums of hashes
    are modulo 2^64 (docs/accounting.md, section 15). Threads: the lock of the book that owns the table.
    """

    buckets: array[int] = field(default_factory=lambda: array("q"))
    columns: dict[str, array[int]] = field(default_factory=dict)
    further: dict[int, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def from_lists(
        cls, buckets: Sequence[int], columns: Mapping[str, Sequence[int]], further: Mapping[int, Mapping[str, int]]
    ) -> SourceColumns:
        """Return the counts in lists. Raises ValueError, TypeError and OverflowError for impossible ones."""
        if any(later <= earlier for earlier, later in pairwise(buckets)):
            raise ValueError("buckets do not ascend")
        if any(len(numbers) != len(buckets) for numbers in columns.values()):
            raise ValueError("a column has another length than its buckets")
        of_source = cls(array("q", buckets))
        for name, numbers in columns.items():
            try:
                if len(of_source.columns) < MAX_COLUMNS:
                    of_source.columns[sys.intern(name)] = array(_type_of(name), numbers)
                    continue
            except OverflowError:
                # A sum of many buckets can be larger than a number of a column.
                pass
            for bucket, number in zip(buckets, numbers, strict=True):
                of_source.add(bucket, {name: number})
        for bucket, counts in further.items():
            of_source.add(bucket, counts)
        return of_source

    def copy(self) -> SourceColumns:
        """Return a copy that shares no mutable state."""
        columns = {name: numbers[:] for name, numbers in self.columns.items()}
        further = {bucket: dict(counts) for bucket, counts in self.further.items()}
        return SourceColumns(self.buckets[:], columns, further)

    def add(self, bucket: int, counts: Mapping[str, int]) -> None:
        """Add ``counts`` to a bucket."""
        index = self._index(bucket)
        for name, count in counts.items():
            if not count:
                continue
            numbers = self.columns.get(name)
            if numbers is None and len(self.columns) < MAX_COLUMNS:
                numbers = array(_type_of(name), bytes(8 * len(self.buckets)))
                self.columns[sys.intern(str(name))] = numbers
            try:
                if numbers is not None:
                    total = numbers[index] + count
                    numbers[index] = total % LARGEST if name.startswith(SUM) else total
                    continue
            except OverflowError:
                pass
            beyond = self.further.setdefault(bucket, {})
            beyond[str(name)] = beyond.get(name, 0) + count

    def _index(self, bucket: int) -> int:
        """Return the index of a bucket, which is inserted if it is missing."""
        buckets = self.buckets
        # Fast path: almost all counts belong to the newest bucket.
        if buckets and buckets[-1] == bucket:
            return len(buckets) - 1
        index = bisect_left(buckets, bucket)
        if index == len(buckets) or buckets[index] != bucket:
            self._insert(index, bucket)
        return index

    def _insert(self, index: int, bucket: int) -> None:
        self.buckets.insert(index, bucket)
        for numbers in self.columns.values():
            numbers.insert(index, 0)

    def make_room(self, buckets: Iterable[int]) -> None:
        """Insert the missing buckets in one pass, with zeros."""
        merged = sorted({*self.buckets, *buckets})
        for name, numbers in self.columns.items():
            by_bucket = dict(zip(self.buckets, numbers, strict=True))
            self.columns[name] = array(numbers.typecode, [by_bucket.get(bucket, 0) for bucket in merged])
        self.buckets = array("q", merged)

    def counts_in(self, bucket: int) -> dict[str, int]:
        """Return the counts of a bucket that are not zero. Raises KeyError if it is missing."""
        index = bisect_left(self.buckets, bucket)
        if index == len(self.buckets) or self.buckets[index] != bucket:
            raise KeyError(bucket)
        return self._sums(index, index + 1)

    def span(self, within: range | None) -> tuple[int, int]:
        """Return the indexes, end exclusive, of the buckets that are selected; None selects all."""
        if within is None:
            return 0, len(self.buckets)
        return bisect_left(self.buckets, within.start), bisect_left(self.buckets, within.stop)

    def sums(self, within: range | None = None) -> dict[str, int]:
        """Return the sums over the selected buckets by name, without zeros."""
        return self._sums(*self.span(within))

    def _sums(self, begin: int, end: int) -> dict[str, int]:
        if end - begin == 1:
            sums = {name: numbers[begin] for name, numbers in self.columns.items() if numbers[begin]}
        else:
            sums = {name: total for name, numbers in self.columns.items() if (total := sum(numbers[begin:end]))}
        if self.further:
            for bucket in self.buckets[begin:end]:
                for name, count in self.further.get(bucket, {}).items():
                    sums[name] = sums.get(name, 0) + count
        return {name: total % LARGEST if name.startswith(SUM) else total for name, total in sums.items()}

    def by_bucket(self, is_counted: Callable[[str], bool], since: int = 0) -> dict[int, int]:
        """Return the sums over the selected names by bucket, some of which are 0; empty if no column is selected.

        All buckets before ``since`` (seconds since the epoch) are summed as bucket 0.
        """
        counted = [numbers for name, numbers in self.columns.items() if is_counted(name)]
        begin = bisect_left(self.buckets, since)
        newer = zip(*(numbers[begin:] for numbers in counted), strict=True)
        sums = dict(zip(self.buckets[begin:], map(sum, newer), strict=True)) if counted else {}
        if begin and counted:
            sums[0] = sums.get(0, 0) + sum(sum(numbers[:begin]) for numbers in counted)
        for bucket, counts in self.further.items():
            if count := sum(count for name, count in counts.items() if is_counted(name)):
                start = bucket if bucket >= since else 0
                sums[start] = sums.get(start, 0) + count
        return sums

    def rolled(self, before: int) -> SourceColumns:
        """Return the counts with buckets older than ``before``, the start of a day, summed by day or month."""
        end, days_begin = bisect_left(self.buckets, before), bisect_left(self.buckets, month_limit(before))
        # Fast path: all but the last day, and the last month, are rolled up already.
        by_minute = next((index for index in range(days_begin, end) if self.buckets[index] % DAY), end)
        in_month = range(min(days_begin, end))
        begin = next((index for index in in_month if self.buckets[index] != month_of(self.buckets[index])), by_minute)
        if begin == end:
            return self
        begin = bisect_left(self.buckets, rolled_bucket(self.buckets[begin], before))
        index_of: dict[int, int] = {}
        for index in range(begin, end):
            index_of.setdefault(rolled_bucket(self.buckets[index], before), index)
        spans = list(pairwise([*index_of.values(), end]))
        buckets = [*self.buckets[:begin], *index_of, *self.buckets[end:]]
        columns = {}
        for name, numbers in self.columns.items():
            sums = [sum(numbers[first:stop]) for first, stop in spans]
            sums = [total % LARGEST for total in sums] if name.startswith(SUM) else sums
            columns[name] = [*numbers[:begin], *sums, *numbers[end:]]
        rolled = SourceColumns.from_lists(buckets, columns, {})
        for bucket, counts in self.further.items():
            rolled.add(rolled_bucket(bucket, before), counts)
        return rolled


def _type_of(name: str) -> str:
    return "Q" if name.startswith(SUM) else "q"


class BucketTable(Mapping[SourceBucket, Value]):
    """Values by source and bucket (seconds since the epoch). Threads: the lock of the book that owns the table."""

    def __init__(self, values: Mapping[SourceBucket, Value] | None = None) -> None:
        self._sources: dict[str, SourceColumns] = {}
        self._owned: set[str] = set()
        """Sources whose columns no copy shares."""
        for key, value in (values or {}).items():
            self.add(key, value)

    @abstractmethod
    def add(self, key: SourceBucket, value: Value) -> None:
        """Add ``value`` to what a source has in a bucket."""

    def make_room(self, keys: Iterable[SourceBucket]) -> None:
        """Insert the buckets of ``keys``, to which values are added next, at once if a source has many of them.

        Limit: so the work for a post grows with its size and the table's, and not with their product.
        """
        by_source: dict[str, set[int]] = {}
        for source, bucket in keys:
            by_source.setdefault(source, set()).add(bucket)
        for source, buckets in by_source.items():
            if len(buckets) > MAX_SINGLE_INSERTIONS:
                self._of_source(source).make_room(buckets)

    @staticmethod
    @abstractmethod
    def _unpacked(counts: dict[str, int]) -> Value: ...

    def __getitem__(self, key: SourceBucket) -> Value:
        source, bucket = key
        return self._unpacked(self._sources[source].counts_in(bucket))

    def __iter__(self) -> Iterator[SourceBucket]:
        return ((source, bucket) for source, columns in self._sources.items() for bucket in columns.buckets)

    def __len__(self) -> int:
        return sum(len(columns.buckets) for columns in self._sources.values())

    def __eq__(self, other: object) -> bool:
        # Fast path: tables with the same history have the same columns. Others may differ in a column of zeros.
        same_columns = isinstance(other, BucketTable) and self._sources == other._sources
        return same_columns or Mapping.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(dict(self))

    def copy(self) -> Self:
        """Return a snapshot, which takes time for each source and none for its buckets."""
        copy = type(self)()
        copy._sources = dict(self._sources)
        # Order: neither table owns its columns any more, so the first write to a source copies them.
        self._owned = set()
        return copy

    def _of_source(self, source: str) -> SourceColumns:
        """Return the columns of a source, which may be changed."""
        if source in self._owned:
            return self._sources[source]
        columns = self._sources[source].copy() if source in self._sources else SourceColumns()
        self._sources[source] = columns
        self._owned.add(source)
        return columns

    def roll_up(self, before: int) -> None:
        """Sum buckets older than ``before`` (seconds since the epoch, the start of a day) by day or month."""
        for source, columns in self._sources.items():
            if (rolled := columns.rolled(before)) is not columns:
                self._sources[source] = rolled
                self._owned.add(source)

    def sources(self) -> Iterator[tuple[str, SourceColumns]]:
        """Return the columns by source; they must not be changed."""
        return iter(self._sources.items())

    def buckets(self, source: str) -> Sequence[int]:
        """Return the buckets of a source in ascending order."""
        return self._sources[source].buckets if source in self._sources else ()

    def sums(self, within: range | None = None) -> dict[str, dict[str, int]]:
        """Return the sums of the selected buckets by source and name; a source without one is missing."""
        spans = ((source, columns, columns.span(within)) for source, columns in self._sources.items())
        return {source: columns._sums(begin, end) for source, columns, (begin, end) in spans if begin < end}

    def sums_of(self, source: str, within: range | None = None) -> dict[str, int]:
        """Return the sums of the selected buckets of a source by name."""
        return self._sources[source].sums(within) if source in self._sources else {}

    def by_interval(self, since: int, step: int) -> dict[int, dict[str, int]]:
        """Return the sums over all sources of buckets from ``since`` on, by the start of each ``step`` seconds."""
        intervals: dict[int, dict[str, int]] = {}
        for columns in self._sources.values():
            begin, end = columns.span(range(since, sys.maxsize))
            starts = [bucket - bucket % step for bucket in columns.buckets[begin:end]]
            for start in starts:
                intervals.setdefault(start, {})
            for name, numbers in columns.columns.items():
                for start, number in zip(starts, numbers[begin:end], strict=True):
                    if number:
                        totals = intervals[start]
                        totals[name] = totals.get(name, 0) + number
            for bucket, counts in columns.further.items():
                if bucket >= since:
                    totals = intervals[bucket - bucket % step]
                    for name, count in counts.items():
                        totals[name] = totals.get(name, 0) + count
        return intervals

    def load(self, source: str, columns: SourceColumns) -> None:
        """Set the columns of a source."""
        self._sources[source] = columns
        self._owned.add(source)


class CountTable(BucketTable[Counts]):
    """Counts by source and bucket."""

    def add(self, key: SourceBucket, value: Mapping[str, int]) -> None:
        self._of_source(key[0]).add(key[1], value)

    @staticmethod
    def _unpacked(counts: dict[str, int]) -> Counts:
        return Counts(counts)


class RowTable(BucketTable[int]):
    """Numbers of rows by source and bucket."""

    def add(self, key: SourceBucket, value: int) -> None:
        self._of_source(key[0]).add(key[1], {ROWS: value})

    @staticmethod
    def _unpacked(counts: dict[str, int]) -> int:
        return counts.get(ROWS, 0)

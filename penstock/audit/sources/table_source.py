"""Sources without a topic: another table, whose offsets or ids must be in the audited one, and a file of ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.audit.columns import OffsetColumns
from penstock.audit.offset_ranges import OffsetRanges
from penstock.audit.source import RECORDS, AuditSource, Expected, Period, SourceUnavailable
from penstock.audit.tables.table import NO_PARTITION, AuditedTable, column_of, partition_value
from penstock.kafka.absent_offsets import Absence, ClassifiedRange
from penstock.landing.offset_runs import Offsets, Runs, count_offsets, difference, intersection, is_inside

ID_FILES = (".txt", ".csv", ".ids")


class TableSource(AuditSource):
    """The rows of another table by their Kafka offsets: all of them must be in the audited table."""

    def __init__(self, table: AuditedTable, address: str, columns: OffsetColumns) -> None:
        topics = _topics(table, columns.topic) if columns.topic else []
        if len(topics) > 1:
            raise SourceUnavailable(f"{address} has rows of the topics {', '.join(topics[:10])}: audit one at a time")
        topic = "".join(topics)
        self.has_topic = bool(topic)
        self.topic, self.address = topic or address, address
        self._held: defaultdict[int, OffsetRanges] = defaultdict(OffsetRanges)
        self.rows_without_offset = 0
        for rows in table.rows(columns, topic):
            self.rows_without_offset += rows.without_offset
            offsets, partitions = rows.offset, rows.partition
            if topic and rows.is_of_topic is not None:
                offsets = offsets[rows.is_of_topic]
                partitions = None if partitions is None else partitions[rows.is_of_topic]
            if partitions is not None:
                is_assigned = partitions != NO_PARTITION
                self.rows_without_offset += int((~is_assigned).sum())
                offsets, partitions = offsets[is_assigned], partitions[is_assigned]
            for number in [0] if partitions is None else np.unique(partitions).tolist():
                self._held[number].add(offsets if partitions is None else offsets[partitions == number])
        if self.rows_without_offset:
            raise SourceUnavailable(f"{address}: {self.rows_without_offset:,} rows have no offset, partition or topic")

    def partitions(self) -> list[int]:
        """Return the numbers of the partitions that have rows."""
        return sorted(self._held)

    def expected(self, partition: int, period: Period) -> Expected:
        """Return the smallest and largest offsets: all rows are required."""
        _refuse_times(self.address, period)
        ranges = self._held[partition].ranges
        begin, end = (int(ranges[0, 0]), int(ranges[-1, 1])) if len(ranges) else (0, 0)
        return Expected(begin, end, begin, end, unused=end - begin - count_offsets(ranges))

    def end(self, partition: int) -> int:
        """Return the end of the offsets."""
        return self.expected(partition, Period(0)).end

    def classify(self, partition: int, absent: Runs) -> Sequence[ClassifiedRange]:
        """Return which of the offsets have a row in this table."""
        present = intersection(absent, self._held[partition].ranges).tolist()
        return [ClassifiedRange(begin, end, Absence.PRESENT) for begin, end in present]

    def never_had(self, partition: int, ranges: Runs, end: int) -> Runs:
        """Return the offsets among ``ranges`` that no row of this table has."""
        return difference(ranges, self._held[partition].ranges)

    def read(self, partition: int, ranges: Runs) -> Iterator[pa.RecordBatch]:
        """Yield the offsets in ``ranges``, without anything else."""
        offsets = np.concatenate([np.arange(begin, end) for begin, end in ranges.tolist()] or [np.zeros(0, np.int64)])
        selected = offsets[is_inside(offsets, self._held[partition].ranges)]
        if len(selected):
            yield _without_times(selected, pa.nulls(len(selected), pa.binary()))


def _topics(table: AuditedTable, column: str) -> list[str]:
    topics: set[str] = set()
    for file, batch in table.batches([column], [column]):
        names = column_of(batch, column)
        in_path = partition_value(file, column)
        topics |= {in_path} if names is None and in_path else set()
        topics |= set() if names is None else set(pc.drop_null(pc.unique(names.cast(pa.string()))).to_pylist())
    return sorted(topics)


class IdSource(AuditSource):
    """Ids without offsets: their position is the number of the row or line, from 0, in partition 0."""

    topic = "ids"

    def __init__(self, address: str, ids: Iterator[pa.Array[Any]]) -> None:
        self.topic = self.address = address
        self._ids = pa.chunked_array([chunk.cast(pa.binary()) for chunk in ids], pa.binary())

    @classmethod
    def from_file(cls, path: Path) -> IdSource:
        """Return the ids in a file, one a line. Raises SourceUnavailable."""
        try:
            # Without a delimiter that occurs in ids, a line is one column.
            options = pyarrow.csv.ParseOptions(delimiter="\x1f", quote_char=False, escape_char=False)
            read = pyarrow.csv.ReadOptions(column_names=["id"])
            convert = pyarrow.csv.ConvertOptions(column_types={"id": pa.string()})
            lines = pyarrow.csv.read_csv(path, read, options, convert)
        except (OSError, pa.ArrowInvalid) as error:
            raise SourceUnavailable(f"{path} cannot be read as one id a line: {error}") from None
        return cls(str(path), iter(lines["id"].chunks))

    @classmethod
    def from_table(cls, table: AuditedTable, address: str, column: str) -> IdSource:
        """Return the ids in a column of a table. Raises SourceUnavailable."""
        if column not in table.column_names():
            raise SourceUnavailable(f"{address} has no column {column!r}")
        columns = (_ids(file, batch, column) for file, batch in table.batches([column]))
        return cls(address, (ids.cast(pa.string()) for ids in columns))

    def partitions(self) -> list[int]:
        """Return the only partition."""
        return [0]

    def expected(self, partition: int, period: Period) -> Expected:
        """Return the number of ids: all of them are required."""
        _refuse_times(self.address, period)
        return Expected(0, len(self._ids), 0, len(self._ids))

    def end(self, partition: int) -> int:
        """Return the number of ids."""
        return len(self._ids)

    def classify(self, partition: int, absent: Runs) -> Sequence[ClassifiedRange]:
        """Return that all ids exist."""
        return [ClassifiedRange(begin, end, Absence.PRESENT) for begin, end in absent.tolist()]

    def read(self, partition: int, ranges: Runs) -> Iterator[pa.RecordBatch]:
        """Yield the ids as keys of records."""
        for begin, end in ranges.tolist():
            for chunk in self._ids.slice(begin, end - begin).chunks:
                yield _without_times(np.arange(begin, begin + len(chunk), dtype=np.int64), chunk)
                begin += len(chunk)


def _ids(file: str, batch: pa.RecordBatch, column: str) -> Any:
    """Return the ids in a batch: from the column, or from the path of a file without it; null if neither has them."""
    ids = column_of(batch, column)
    return pa.repeat(pa.scalar(partition_value(file, column), pa.string()), batch.num_rows) if ids is None else ids


def _without_times(offsets: Offsets, keys: pa.Array[Any]) -> pa.RecordBatch:
    # A value that is not null: without one, a record would count as a tombstone.
    fixed: Mapping[str, pa.Array[Any]] = {
        "offset": pa.array(offsets, pa.int64()),
        "key": keys,
        "value": pa.repeat(pa.scalar(b"", pa.binary()), len(offsets)),
    }
    columns = [fixed.get(field.name, pa.nulls(len(offsets), field.type)) for field in RECORDS]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def _refuse_times(address: str, period: Period) -> None:
    if period.since_s is not None or period.until_s is not None or period.group:
        raise SourceUnavailable(f"{address}: --since, --until and --group need a topic as the source")

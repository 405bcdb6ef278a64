"""The options of an audit and its outcome: what is missing, doubled, unexplained or different."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.audit.columns import OffsetColumns
from penstock.audit.fields import FieldPair
from penstock.audit.source import Expected, Lag, Period, Record
from penstock.audit.tables.table import Loss
from penstock.landing.offset_runs import NO_RUNS, Runs, count_offsets

DEFAULT_GRACE_S = 900.0
"""Age of a record from which on a table must have it."""
ALL = -1
"""The sample of all records."""


@dataclass(frozen=True, slots=True)
class Request:
    """The options of an audit: columns by name (found by convention if empty), times in seconds since the epoch."""

    offset: str = ""
    partition: str = ""
    topic_column: str = ""
    grace_s: float = DEFAULT_GRACE_S
    since_s: float | None = None
    until_s: float | None = None
    group: str = ""
    counts_tombstones: bool = False
    """Records without a value must have a row too."""
    dead_letter: str = ""
    """Topic with records that the sink could not write."""
    ids: FieldPair | None = None
    """The column of a unique id: rows are found by it instead of by offsets."""
    times: FieldPair | None = None
    """The column of a time: rows are counted by hour instead of found."""
    compared: tuple[FieldPair, ...] = ()
    """Columns whose content is compared; empty for all that have a field of the same name."""
    decoder: str = ""
    """Function, as module:function, that turns values into JSON texts."""
    sample: int = 0
    """Records whose content is compared; 0 for none, ALL for all."""
    spans: Mapping[int, tuple[int, int, int]] | None = None
    """Begin, due and end of each partition in an earlier audit, which this one repeats."""
    counted: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Due and end of the offsets that the earlier audit counted by hour."""
    began_s: float | None = None
    """Time of the earlier audit."""

    @property
    def period(self) -> Period:
        """The limits of required records."""
        return Period(self.grace_s, self.since_s, self.until_s, self.group)


@dataclass(slots=True)
class PartitionReport:
    """The outcome for one partition. Ranges are offsets [begin, end)."""

    partition: int
    expected: Expected
    rows: int = 0
    missing: Runs = field(default_factory=NO_RUNS.copy)
    doubled: Runs = field(default_factory=NO_RUNS.copy)
    unexplained: Runs = field(default_factory=NO_RUNS.copy)
    """Offsets in the table that the topic never had, or whose records are of aborted transactions."""
    absences: Counter[str] = field(default_factory=Counter)
    """Absent offsets that need no row, by reason."""
    undecided: int = 0
    """Absent offsets whose record batches cannot be read."""
    is_decided: bool = False
    """Whether each offset has a verdict, though not yet its cause."""
    newest: int = -1
    """The largest offset in the table; -1 for none."""
    missing_by_hour: Counter[int] = field(default_factory=Counter)
    """Missing records that were read from Kafka, by the hour of their timestamp (hours since the epoch)."""
    missing_times: tuple[int, int] | None = None
    """The first and the last timestamp of these records, in milliseconds since the epoch."""
    evidence: list[Record] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    doubled_in: dict[str, str] = field(default_factory=dict)
    """Files with doubled rows, and the commit that added each."""
    orphans: dict[str, int] = field(default_factory=dict)
    """Files that hold missing rows but belong to no version of the table."""
    lag: Lag | None = None
    """The records behind the newest row; None if there are none."""
    differing: Runs = field(default_factory=NO_RUNS.copy)
    """Records whose row has another content."""
    differing_in: Counter[str] = field(default_factory=Counter)
    """Differing records by column."""
    counted: tuple[int, int] | None = None
    """The first offset that was not due yet and the end of the offsets, of records that were counted by hour."""
    differences: list[str] = field(default_factory=list)
    """The first differing contents, as text."""

    @property
    def has_findings(self) -> bool:
        """Whether rows are missing, doubled, unexplained or different."""
        return any(len(ranges) for ranges in (self.missing, self.doubled, self.unexplained, self.differing))


@dataclass(frozen=True, slots=True)
class HourCount:
    """The records and rows of an hour (hours since the epoch); ``is_equal``: whether their checksums are."""

    hour: int
    records: int
    rows: int
    is_equal: bool

    @property
    def missing(self) -> int:
        return max(0, self.records - self.rows)

    @property
    def doubled(self) -> int:
        return max(0, self.rows - self.records)


@dataclass(frozen=True, slots=True)
class Proof:
    """The way in which rows are matched with records, by ``columns`` of the table; ``limits`` it cannot see beyond."""

    text: str
    columns: tuple[str, ...]
    limits: str = ""


@dataclass(slots=True)
class Report:
    """The outcome of an audit."""

    request: Request
    source: str
    topic: str
    table: str
    kind: str
    version: str
    columns: OffsetColumns
    proof: Proof
    began_s: float
    partitions: list[PartitionReport]
    rows_of_other_topics: int = 0
    rows_without_offset: int = 0
    """Rows without an offset, an id or a time, by the kind of proof."""
    rows_of_unknown_partitions: int = 0
    unknown_ids: int = 0
    """Rows whose id no record has, although the source has all records."""
    rows_of_no_record: int = 0
    """Rows whose id no record has, which may have expired: no finding."""
    repeated_ids: int = 0
    """Ids that several records have: one row for all of them is not a finding."""
    possibly_doubled: int = 0
    """Ids with more rows than stored records, which may have had more records: no finding."""
    lost_files: list[str] = field(default_factory=list)
    """Files that the table refers to and that do not exist."""
    unsearched: list[str] = field(default_factory=list)
    """Causes of findings that were not searched, each with the reason."""
    hours: list[HourCount] = field(default_factory=list)
    intervals: list[str] = field(default_factory=list)
    """The records of each interval as text, if it was asked for."""
    compared: tuple[FieldPair, ...] = ()
    compared_records: int = 0

    @property
    def required(self) -> int:
        """The number of records that the table must have or explain."""
        if self.request.times is not None:
            return sum(hour.records for hour in self.hours)
        return sum(part.expected.due - part.expected.begin - part.expected.unused for part in self.partitions)

    @property
    def missing(self) -> int:
        return sum(count_offsets(part.missing) for part in self.partitions) + sum(hour.missing for hour in self.hours)

    @property
    def doubled(self) -> int:
        return sum(count_offsets(part.doubled) for part in self.partitions) + sum(hour.doubled for hour in self.hours)

    @property
    def unexplained(self) -> int:
        ranges = sum(count_offsets(part.unexplained) for part in self.partitions)
        return ranges + self.rows_of_unknown_partitions + self.unknown_ids

    @property
    def differing(self) -> int:
        return sum(count_offsets(part.differing) for part in self.partitions)

    @property
    def differing_hours(self) -> int:
        """The hours with the right number of rows and another checksum."""
        return sum(hour.records == hour.rows and not hour.is_equal for hour in self.hours)

    @property
    def undecided(self) -> int:
        return sum(part.undecided for part in self.partitions) + self.rows_without_offset

    @property
    def status(self) -> int:
        """The exit status: 0 complete, 1 missing, doubled, unexplained or different rows, 2 could not be decided."""
        if (
            self.lost_files
            or self.missing
            or self.doubled
            or self.unexplained
            or self.differing
            or self.differing_hours
        ):
            return 1
        return 2 if self.undecided else 0

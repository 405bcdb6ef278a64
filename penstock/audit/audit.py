"""The whole audit: compare the offsets that a topic has with the offsets that a table has.

Order: the topic's ends are read before the table and again after it. A row that arrives during the audit is then
neither missing nor beyond the end. The table is read at one version.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.audit.columns import NoOffsets, OffsetColumns, find_columns
from penstock.audit.kafka_source import Expected, KafkaSource, Lag, Record
from penstock.audit.offset_ranges import OffsetRanges
from penstock.audit.tables.table import AuditedTable, Loss, OffsetRows, without_credentials
from penstock.kafka.absent_offsets import Absence
from penstock.landing.offset_runs import (
    NO_RUNS,
    OffsetRange,
    Runs,
    as_runs,
    count_offsets,
    difference,
    intersection,
    is_inside,
    runs_of,
)

DEFAULT_GRACE_S = 900.0
"""Age of a record from which on a table must have it."""
MAX_EVIDENCE = 100_000
"""Limit: missing records that are read from Kafka, for tombstones, hours and evidence."""
MAX_HELD_BYTES = 1 << 30
"""Limit: offsets in memory. A billion in any order take 300 MB."""
SHOWN_RECORDS = 5
BEYOND = 1 << 62


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
    spans: Mapping[int, tuple[int, int, int]] | None = None
    """Begin, due and end of each partition in an earlier audit, which this one repeats."""


@dataclass(slots=True)
class PartitionReport:
    """The outcome for one partition. Ranges are offsets [begin, end)."""

    partition: int
    expected: Expected
    rows: int = 0
    missing: Runs = field(default_factory=NO_RUNS.copy)
    doubled: Runs = field(default_factory=NO_RUNS.copy)
    unexplained: Runs = field(default_factory=NO_RUNS.copy)
    """Offsets in the table that the topic never had."""
    absences: Counter[str] = field(default_factory=Counter)
    """Absent offsets that need no row, by reason."""
    undecided: int = 0
    """Absent offsets whose record batches cannot be read."""
    newest: int = -1
    """The largest offset in the table; -1 for none."""
    missing_by_hour: Counter[int] = field(default_factory=Counter)
    """Missing records that were read from Kafka, by the hour of their timestamp (hours since the epoch)."""
    evidence: list[Record] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    doubled_in: dict[str, str] = field(default_factory=dict)
    """Files with doubled rows, and the commit that added each."""
    orphans: dict[str, int] = field(default_factory=dict)
    """Files that hold missing rows but belong to no version of the table."""
    lag: Lag | None = None
    """The records behind the newest row; None if there are none."""

    @property
    def has_findings(self) -> bool:
        """Whether rows are missing, doubled or unexplained."""
        return any(len(ranges) for ranges in (self.missing, self.doubled, self.unexplained))


@dataclass(slots=True)
class Report:
    """The outcome of an audit."""

    request: Request
    brokers: str
    topic: str
    table: str
    kind: str
    version: str
    columns: OffsetColumns
    began_s: float
    partitions: list[PartitionReport]
    rows_of_other_topics: int = 0
    rows_without_offset: int = 0
    rows_of_unknown_partitions: int = 0

    @property
    def required(self) -> int:
        """The number of offsets that the table must have or explain."""
        return sum(part.expected.due - part.expected.begin for part in self.partitions)

    @property
    def missing(self) -> int:
        return sum(count_offsets(part.missing) for part in self.partitions)

    @property
    def doubled(self) -> int:
        return sum(count_offsets(part.doubled) for part in self.partitions)

    @property
    def unexplained(self) -> int:
        return sum(count_offsets(part.unexplained) for part in self.partitions) + self.rows_of_unknown_partitions

    @property
    def undecided(self) -> int:
        return sum(part.undecided for part in self.partitions) + self.rows_without_offset

    @property
    def status(self) -> int:
        """The exit status: 0 complete, 1 missing, doubled or unexplained rows, 2 could not be decided."""
        if self.missing or self.doubled or self.unexplained:
            return 1
        return 2 if self.undecided else 0


def audit(
    source: KafkaSource,
    table: AuditedTable,
    address: str,
    request: Request,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Return the report. Raises SourceUnavailable, TableUnreadable and NoOffsets, and then nothing is decided."""
    began_s = time.time()
    numbers = source.partitions() if request.spans is None else sorted({*request.spans} & {*source.partitions()})
    columns = find_columns(table.column_names(), request.offset, request.partition, request.topic_column)
    if not columns.partition and len(numbers) > 1:
        raise NoOffsets(
            f"topic {source.topic} has {len(numbers)} partitions, and no column of the table says which one a row "
            "belongs to; name it by --partition COLUMN"
        )
    reports = {number: PartitionReport(number, _expected(source, number, request)) for number in numbers}
    report = Report(
        request,
        source.brokers,
        source.topic,
        without_credentials(address),
        table.kind,
        table.version,
        columns,
        began_s,
        list(reports.values()),
    )
    held = {number: OffsetRanges() for number in numbers}
    read = 0
    unknown: Counter[int] = Counter()
    for rows in table.rows(columns, source.topic):
        _add(held, rows, unknown, report)
        read += len(rows.offset)
        progress(f"{read:,} rows")
        if sum(offsets.size_bytes for offsets in held.values()) > MAX_HELD_BYTES:
            raise NoOffsets(f"the offsets of {without_credentials(address)} are too scattered to be held in memory")
    if unknown:
        # Partitions that were added during the audit are not checked.
        added = set(source.partitions())
        report.rows_of_unknown_partitions = sum(rows for number, rows in unknown.items() if number not in added)
    for number, part in reports.items():
        progress(f"partition {number}")
        _judge(source, part, held[number], request)
    missing = {part.partition: part.missing for part in report.partitions if len(part.missing)}
    if missing:
        progress("records without a row")
        for number, reasons in table.explain(source.properties, columns, source.topic, missing).items():
            for reason, ranges in reasons.items():
                reports[number].absences[reason] += count_offsets(ranges)
                reports[number].missing = difference(reports[number].missing, ranges)
    if request.dead_letter:
        progress("dead letters")
        for number, offsets in source.dead_letters(request.dead_letter).items():
            if number in reports:
                part = reports[number]
                dead = intersection(part.missing, offsets)
                part.absences["dead_letter"] += count_offsets(dead)
                part.missing = difference(part.missing, dead)
    for part in report.partitions:
        _read_evidence(source, part, request)
        if request.spans is None:
            part.lag = source.lag(part.partition, max(part.newest + 1, part.expected.start))
    _find_files(table, columns, report)
    missing = {part.partition: part.missing for part in report.partitions if len(part.missing)}
    if missing:
        progress("history of the table")
        for loss in table.losses(columns, source.topic, missing):
            reports[loss.partition].losses.append(loss)
        for orphan in table.orphans(columns, source.topic, missing):
            reports[orphan.partition].orphans[orphan.file] = orphan.rows
    return report


def _expected(source: KafkaSource, number: int, request: Request) -> Expected:
    expected = source.expected(number, request.grace_s, request.since_s, request.until_s, request.group)
    if request.spans is None:
        return expected
    begin, due, end = request.spans[number]
    begin = max(begin, expected.start)
    return Expected(expected.start, end, begin, max(begin, due))


def _add(held: dict[int, OffsetRanges], rows: OffsetRows, unknown: Counter[int], report: Report) -> None:
    report.rows_without_offset += rows.without_offset
    offsets, partitions = rows.offset, rows.partition
    if rows.is_of_topic is not None and not rows.is_of_topic.all():
        report.rows_of_other_topics += int((~rows.is_of_topic).sum())
        offsets = offsets[rows.is_of_topic]
        partitions = None if partitions is None else partitions[rows.is_of_topic]
    if partitions is None:
        next(iter(held.values())).add(offsets)
        return
    # Fast path: files mostly have rows of one partition each.
    is_mixed = bool((partitions[1:] != partitions[:-1]).any())
    for number in np.unique(partitions if is_mixed else partitions[:1]).tolist():
        of_partition = offsets[partitions == number] if is_mixed else offsets
        if number in held:
            held[number].add(of_partition)
        else:
            unknown[number] += len(of_partition)


def _judge(source: KafkaSource, part: PartitionReport, held: OffsetRanges, request: Request) -> None:
    expected, ranges = part.expected, held.ranges
    part.rows = held.rows
    part.newest = int(ranges[-1, 1]) - 1 if len(ranges) else -1
    begin = 0 if request.since_s is None else expected.begin
    part.doubled = intersection(held.repeated, as_runs([(begin, BEYOND)]))
    beyond = intersection(ranges, as_runs([(expected.end, BEYOND)]))
    if len(beyond):
        # A row beyond the first end may have been produced during the audit; a new partition is created empty.
        beyond = intersection(beyond, as_runs([(source.end(part.partition), BEYOND)]))
    part.unexplained = as_runs(np.concatenate([beyond, intersection(ranges, as_runs([(-BEYOND, 0)]))]))
    absent = difference(as_runs([(expected.begin, expected.due)]), ranges)
    present: list[OffsetRange] = []
    for span in source.classify(part.partition, absent):
        if span.absence is Absence.PRESENT:
            present.append((span.begin, span.end))
        elif span.absence is Absence.UNKNOWN:
            part.undecided += span.end - span.begin
        else:
            part.absences[span.absence.value] += span.end - span.begin
    part.missing = as_runs(present)


def _read_evidence(source: KafkaSource, part: PartitionReport, request: Request) -> None:
    """Read records that the table lacks: tombstones need no row, the others are evidence."""
    tombstones = []
    for record in source.records(part.partition, part.missing, MAX_EVIDENCE):
        if record.value is None and not request.counts_tombstones:
            tombstones.append(record.offset)
            continue
        if record.timestamp > 0:
            part.missing_by_hour[record.timestamp // 3_600_000] += 1
        if len(part.evidence) < SHOWN_RECORDS:
            part.evidence.append(record)
    if tombstones:
        part.absences["tombstone"] = len(tombstones)
    part.missing = difference(part.missing, runs_of(np.array(tombstones, np.int64)))


def _find_files(table: AuditedTable, columns: OffsetColumns, report: Report) -> None:
    """Name the files with doubled rows; the table is read once more, only if there are any."""
    doubled = {part.partition: part for part in report.partitions if len(part.doubled)}
    if not doubled:
        return
    for rows in table.rows(columns, report.topic):
        for number, part in doubled.items():
            mask = is_inside(rows.offset, part.doubled)
            if rows.partition is not None:
                mask &= rows.partition == number
            if rows.is_of_topic is not None:
                mask &= rows.is_of_topic
            if mask.any():
                part.doubled_in[rows.file] = ""
    commits = table.commits_of({name for part in doubled.values() for name in part.doubled_in})
    for part in doubled.values():
        part.doubled_in = {name: commits.get(name, "") for name in part.doubled_in}

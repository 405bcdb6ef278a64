"""The whole audit: compare the records that a source has with the rows that a table has.

Order: the source's ends are read before the table and again after it. A row that arrives during the audit is then
neither missing nor beyond the end. The table is read at one version.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from penstock.audit.columns import FILE_NAME, NoOffsets, OffsetColumns, find_columns
from penstock.audit.matching.by_counts import count_by_hour, count_proof
from penstock.audit.matching.by_ids import id_proof, judge_by_ids
from penstock.audit.matching.content import compare_content
from penstock.audit.offset_ranges import OffsetRanges
from penstock.audit.outcome import PartitionReport, Proof, Report, Request
from penstock.audit.pace import Pace
from penstock.audit.source import BEYOND, AuditSource, Expected, SourceUnavailable
from penstock.audit.tables.address import without_credentials
from penstock.audit.tables.table import NO_PARTITION, AuditedTable, OffsetRows, TableUnreadable
from penstock.kafka.absent_offsets import Absence
from penstock.landing.offset_runs import (
    OffsetRange,
    as_runs,
    count_offsets,
    difference,
    intersection,
    is_inside,
    runs_of,
)

MAX_EVIDENCE = 100_000
"""Limit: missing records that are read from the source, for tombstones, hours and evidence."""
MAX_HELD_BYTES = 1 << 30
"""Limit: offsets in memory. A billion in any order take 300 MB."""
SHOWN_RECORDS = 5
FILE_NAME_LIMITS = (
    "which rows of a file are missing or doubled, a lost row and a doubled one in the same file, and a lost row in a "
    "file with records without a value"
)


def audit(
    source: AuditSource,
    table: AuditedTable,
    address: str,
    request: Request,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Return the report. Raises SourceUnavailable, TableUnreadable, NoOffsets and BadField; then nothing is decided."""
    began_s = time.time()
    numbers = source.partitions()
    if request.spans is not None:
        numbers = sorted({*request.spans} & {*numbers})
    columns, proof = _proof(source, table, request, numbers)
    reports = {number: PartitionReport(number, _expected(source, number, request)) for number in numbers}
    report = Report(
        request=request,
        source=source.address,
        topic=source.topic,
        table=without_credentials(address),
        kind=table.kind,
        version=table.version,
        columns=columns,
        proof=proof,
        began_s=began_s,
        partitions=list(reports.values()),
    )
    try:
        _check(source, table, report, progress)
    except (SourceUnavailable, TableUnreadable) as error:
        raise type(error)(f"{error}; {_decided_part(report)}") from None
    report.lost_files, report.unsearched = table.lost_files, table.unsearched
    return report


def _decided_part(report: Report) -> str:
    """Return a sentence about the decided and the undecided parts of an interrupted audit."""
    decided = [part for part in report.partitions if part.is_decided]
    if not decided:
        return "nothing was decided"
    missing = sum(count_offsets(part.missing) for part in decided)
    doubled = sum(count_offsets(part.doubled) for part in decided)
    findings = f"{missing:,} absent records and {doubled:,} doubled"
    if len(decided) == len(report.partitions):
        return f"decided: {findings} in all partitions; not decided: their causes, tombstones and dead letters"
    return f"decided: {findings} in {len(decided)} of {len(report.partitions)} partitions; not decided: the others"


def _check(source: AuditSource, table: AuditedTable, report: Report, progress: Callable[[str], None]) -> None:
    request, columns = report.request, report.columns
    reports = {part.partition: part for part in report.partitions}
    if request.times is not None:
        count_by_hour(source, table, report, request.times, progress)
        return
    if request.ids is not None:
        judge_by_ids(source, table, report, request.ids, progress)
    else:
        _judge_by_offsets(source, table, report, progress)
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
    if request.ids is None:
        _find_files(table, columns, report)
        _search_history(table, columns, report, progress)


def _proof(
    source: AuditSource, table: AuditedTable, request: Request, numbers: Sequence[int]
) -> tuple[OffsetColumns, Proof]:
    """Return the columns of offsets, none for other proofs, and how rows are matched with records."""
    if request.times is not None:
        return OffsetColumns(""), count_proof(request)
    if request.ids is not None:
        return OffsetColumns(""), id_proof(request.ids)
    columns = find_columns(table.column_names(), request.offset, request.partition, request.topic_column)
    if not columns.partition and len(numbers) > 1:
        raise NoOffsets(
            f"topic {source.topic} has {len(numbers)} partitions, and no column of the table says which one a row "
            "belongs to; name it by --partition COLUMN"
        )
    if columns == FILE_NAME:
        if request.sample:
            raise NoOffsets("a row is found by the offset in its file's name only; compare contents with --id COLUMN")
        return columns, Proof("by topic, partition and first offset in the names of its files", (), FILE_NAME_LIMITS)
    if not source.has_topic:
        columns = replace(columns, topic="")
    key = tuple(name for name in (columns.partition, columns.offset) if name)
    named = f"column {columns.offset}" + (f" and {columns.partition}" if columns.partition else "")
    return columns, Proof(f"by {named}", key)


def _judge_by_offsets(
    source: AuditSource, table: AuditedTable, report: Report, progress: Callable[[str], None]
) -> None:
    columns, request = report.columns, report.request
    reports = {part.partition: part for part in report.partitions}
    held = {number: OffsetRanges() for number in reports}
    pace = Pace("rows", report.required, progress)
    unknown: Counter[int] = Counter()
    for rows in table.rows(columns, source.topic):
        _add(held, rows, unknown, report)
        pace.advance(len(rows.offset))
        if sum(offsets.size_bytes for offsets in held.values()) > MAX_HELD_BYTES:
            raise NoOffsets(f"the offsets of {report.table} are too scattered to be held in memory")
    if unknown:
        # Partitions that were added during the audit are not checked.
        added = set(source.partitions())
        report.rows_of_unknown_partitions = sum(rows for number, rows in unknown.items() if number not in added)
    for number, part in reports.items():
        progress(f"partition {number}")
        _judge(source, part, held[number], request)
        part.is_decided = True
    missing = {part.partition: part.missing for part in report.partitions if len(part.missing)}
    if missing:
        progress("records without a row")
        for number, reasons in table.explain(source, columns, missing).items():
            for reason, ranges in reasons.items():
                reports[number].absences[reason] += count_offsets(ranges)
                reports[number].missing = difference(reports[number].missing, ranges)
    if request.sample:
        present = {
            number: intersection(held[number].ranges, as_runs([(part.expected.begin, part.expected.due)]))
            for number, part in reports.items()
        }
        compare_content(source, table, report, present, progress)


def _search_history(
    table: AuditedTable, columns: OffsetColumns, report: Report, progress: Callable[[str], None]
) -> None:
    """Name the commits that lost rows, and files of no version that hold them."""
    reports = {part.partition: part for part in report.partitions}
    missing = {part.partition: part.missing for part in report.partitions if len(part.missing)}
    if missing:
        progress("history of the table")
        for loss in table.losses(columns, report.topic, missing):
            reports[loss.partition].losses.append(loss)
        for orphan in table.orphans(columns, report.topic, missing):
            reports[orphan.partition].orphans[orphan.file] = orphan.rows


def _expected(source: AuditSource, number: int, request: Request) -> Expected:
    expected = source.expected(number, request.period)
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
        if number == NO_PARTITION:
            report.rows_without_offset += len(of_partition)
        elif number in held:
            held[number].add(of_partition)
        else:
            unknown[number] += len(of_partition)


def _judge(source: AuditSource, part: PartitionReport, held: OffsetRanges, request: Request) -> None:
    expected, ranges = part.expected, held.ranges
    part.rows = held.rows
    part.newest = int(ranges[-1, 1]) - 1 if len(ranges) else -1
    begin = 0 if request.since_s is None else expected.begin
    part.doubled = intersection(held.repeated, as_runs([(begin, BEYOND)]))
    part.unexplained = source.never_had(part.partition, ranges, expected.end)
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
    part.unexplained = as_runs(np.concatenate([part.unexplained, source.aborted(part.partition, ranges)]))


def _read_evidence(source: AuditSource, part: PartitionReport, request: Request) -> None:
    """Read records that the table lacks: tombstones need no row, the others are evidence."""
    tombstones = []
    for record in source.records(part.partition, part.missing, MAX_EVIDENCE):
        if record.value is None and not request.counts_tombstones:
            tombstones.append(record.offset)
            continue
        if record.timestamp > 0:
            part.missing_by_hour[record.timestamp // 3_600_000] += 1
            first, last = part.missing_times or (record.timestamp, record.timestamp)
            part.missing_times = min(first, record.timestamp), max(last, record.timestamp)
        if len(part.evidence) < SHOWN_RECORDS:
            part.evidence.append(record)
    if tombstones:
        part.absences["tombstone"] = len(tombstones)
    part.missing = difference(part.missing, runs_of(np.array(tombstones, np.int64)))


def _find_files(table: AuditedTable, columns: OffsetColumns, report: Report) -> None:
    """Name the files with doubled rows; the table is read again, only if there are any."""
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

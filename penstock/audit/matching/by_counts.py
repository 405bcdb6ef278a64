"""Compare the numbers of records and rows by hour, and checksums of columns, for tables with neither offsets nor ids.

The weakest proof: equal counts do not show that no row was lost while another was doubled, and only with checksums that
no content changed. Only whole hours within the checked time are compared: hours whose records all exist and are due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.audit.fields import FieldPair
from penstock.audit.matching.staging import Staging
from penstock.audit.outcome import HourCount, PartitionReport, Proof, Report, Request
from penstock.audit.pace import Pace
from penstock.audit.source import UNREAD, AuditSource, Period
from penstock.audit.tables.table import AuditedTable
from penstock.kafka.absent_offsets import Absence, ClassifiedRange
from penstock.landing.offset_runs import as_runs

HOUR_S = 3600
HOUR_MICROS = HOUR_S * 1_000_000


def count_proof(request: Request) -> Proof:
    """Return how rows are compared with records."""
    assert request.times is not None
    text = f"by counts per hour of column {request.times.column}, which is {request.times.field} of the record"
    if request.compared:
        named = ", ".join(pair.column for pair in request.compared)
        return Proof(f"{text}, and a checksum of {named}", (), "which rows are missing or different")
    return Proof(text, (), "a lost row and a doubled one in the same hour, and which rows are missing")


def count_by_hour(
    source: AuditSource, table: AuditedTable, report: Report, pair: FieldPair, progress: Callable[[str], None]
) -> None:
    """Count records and rows by hour; checksums cover the compared columns."""
    request = report.request
    # Order: due offsets are read before the table, and the source's end after it.
    dues = {part.partition: _due(source, part, request) for part in report.partitions}
    with Staging([pair, *request.compared], request.decoder) as staging:
        total = sum(part.expected.due - part.expected.begin for part in report.partitions)
        staging.load_rows(table, None, source.topic, None, Pace("rows", total, progress))
        staging.require_plain(range(len(staging.pairs)))
        # Records outside the required ones are read too: they show which hours are whole.
        spans = {}
        for part in report.partitions:
            number = part.partition
            end = max(part.expected.end, source.end(number))
            part.counted = request.counted.get(number, (dues[number], end))
            spans[number] = as_runs([(part.expected.start, part.counted[1])])
        staging.load_records(source, spans, spans, request.counts_tombstones, progress)
        progress("counts by hour")
        indices = range(1, len(staging.pairs))
        rows = ", ".join([f"{staging.hour_of_row(0)} AS hour", *(staging.content_of_row(index) for index in indices)])
        records = ", ".join([f"{staging.hour_of_record(0)} AS hour", *(f"c{index}" for index in indices)])
        counted = {
            name: _counts(staging, query)
            for name, query in (
                ("records", f"SELECT {records} FROM records WHERE required"),  # noqa: S608 - parsed fields
                ("rows", f"SELECT {rows} FROM rows"),  # noqa: S608 - parsed fields
            )
        }
        report.rows_without_offset = counted["rows"].pop(None, (0, 0))[0]
        report.rows_without_offset += counted["records"].pop(None, (0, 0))[0]
        unread = {part.partition: staging.unread(source, part.partition) for part in report.partitions}
        for part in report.partitions:
            part.undecided = sum(
                max(0, span.end - max(span.begin, part.expected.begin))
                for span in unread[part.partition]
                if span.absence in UNREAD
            )
        if any(part.undecided for part in report.partitions):
            # The hours of unread records are unknown, so no hour can be compared.
            return
        begin, end = _whole_hours(staging, report, unread)
        open_hours = _open_hours(staging, dues)
    for hour in sorted({hour for counts in counted.values() for hour in counts if hour is not None}):
        if begin <= hour < end and hour not in open_hours:
            record_count, record_sum = counted["records"].get(hour, (0, 0))
            row_count, row_sum = counted["rows"].get(hour, (0, 0))
            report.hours.append(HourCount(hour, record_count, row_count, record_sum == row_sum))


def _counts(staging: Staging, query: str) -> dict[int | None, tuple[int, int]]:
    """Return the number and the checksum of the rows of a query by its column ``hour``."""
    grouped = staging.query(f"SELECT q.hour, count(*), sum(hash(q)::HUGEINT) FROM ({query}) q GROUP BY 1")  # noqa: S608
    return {None if hour is None else int(hour): (int(count), int(total)) for hour, count, total in grouped}


def _due(source: AuditSource, part: PartitionReport, request: Request) -> int:
    """Return the first offset whose row need not exist yet. ``until`` does not matter: later records are due too."""
    if part.partition in request.counted:
        return request.counted[part.partition][0]
    if request.until_s is None:
        return part.expected.due
    return source.expected(part.partition, Period(request.grace_s, group=request.group)).due


def _open_hours(staging: Staging, dues: Mapping[int, int]) -> set[int]:
    """Return the hours of records that are not due yet: an event may be sent long after its time."""
    hours: set[int] = set()
    for number, due in dues.items():
        query = f'FROM records WHERE required AND "partition" = {number} AND position >= {due}'
        hours |= {hour for (hour,) in staging.query(f"SELECT DISTINCT {staging.hour_of_record(0)} {query}")}
    return hours


def _whole_hours(staging: Staging, report: Report, unread: Mapping[int, Sequence[ClassifiedRange]]) -> tuple[int, int]:
    """Return the hours [begin, end) within the checked time of which no record is gone."""
    request = report.request
    began_s = report.began_s if request.began_s is None else request.began_s
    end_s = began_s - request.grace_s
    if request.until_s is not None:
        end_s = min(end_s, request.until_s)
    begin_s = request.since_s or 0.0
    for part in report.partitions:
        gone = [span.end for span in unread[part.partition] if span.absence in (Absence.EXPIRED, Absence.COMPACTED)]
        first = max(gone, default=part.expected.start)
        if not first:
            continue
        # The first record that is not gone decides, not the earliest time: a producer may send any time, such as 0.
        ((micros,),) = staging.query(
            f'SELECT arg_min(micros, position) FROM records WHERE "partition" = {int(part.partition)} '  # noqa: S608
            f"AND position >= {first} AND micros > 0"
        )
        begin_s = max(begin_s, report.began_s if micros is None else micros / 1_000_000)
    return -int(-begin_s // HOUR_S), int(end_s // HOUR_S)

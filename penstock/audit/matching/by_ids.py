"""Match records and rows by a unique id, for tables that do not keep Kafka's offsets.

Weaker than offsets in two ways, which the report names: records that share an id are one record here, and the whole
topic is read. An id that more rows have than records is doubled, and a row of no record is a finding, only as far as no
record is gone that could explain it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from penstock.audit.fields import FieldPair
from penstock.audit.matching.content import compare_staged, content_pairs
from penstock.audit.matching.staging import Staging
from penstock.audit.outcome import PartitionReport, Proof, Report
from penstock.audit.pace import Pace
from penstock.audit.source import UNREAD, AuditSource
from penstock.audit.tables.table import AuditedTable
from penstock.kafka.absent_offsets import Absence, ClassifiedRange
from penstock.landing.offset_runs import NO_RUNS, Runs, as_runs, count_offsets, runs_of

LIMITS = "records with the same id count as one, and their content is not compared; a row that was changed keeps its id"

_WITHOUT_ID = {Absence.CONTROL, Absence.ABORTED}
"""Reasons of offsets that never had a record for the table."""


def id_proof(pair: FieldPair) -> Proof:
    """Return how rows are matched with records."""
    return Proof(f"by the id in column {pair.column}, which is {pair.field} of the record", (pair.column,), LIMITS)


def judge_by_ids(
    source: AuditSource, table: AuditedTable, report: Report, pair: FieldPair, progress: Callable[[str], None]
) -> None:
    """Find missing and doubled ids, and rows of no record. Positions in the report belong to records."""
    pairs = content_pairs(table, report) if report.request.sample else []
    with Staging([pair, *pairs], report.request.decoder) as staging:
        staging.load_rows(table, None, source.topic, None, Pace("rows", report.required, progress))
        staging.require_plain([0])
        # Order: the source is read after the table, up to its present end, so that a new row has its record.
        spans = {
            part.partition: as_runs([(part.expected.start, max(part.expected.end, source.end(part.partition)))])
            for part in report.partitions
        }
        required = {part.partition: as_runs([(part.expected.begin, part.expected.due)]) for part in report.partitions}
        staging.load_records(source, spans, required, report.request.counts_tombstones, progress)
        progress("ids")
        _count_ids(staging)
        unread = {part.partition: staging.unread(source, part.partition) for part in report.partitions}
        for part in report.partitions:
            _judge_partition(staging, part, unread[part.partition])
            part.is_decided = True
        report.rows_without_offset = _number(staging, "SELECT count(*) FROM rows WHERE c0 IS NULL")
        report.repeated_ids = _number(staging, "SELECT count(*) FROM ids WHERE records > 1")
        strangers = _number(staging, "SELECT coalesce(sum(rows), 0) FROM ids WHERE records = 0")
        gone = {span.absence for spans_of_part in unread.values() for span in spans_of_part} - _WITHOUT_ID
        has_all_records = not gone and not any(part.expected.start for part in report.partitions)
        # Compaction leaves one record of each key, so unique ids say nothing about the records before.
        is_compacted = source.is_compacted or Absence.COMPACTED in gone
        if not has_all_records and (report.repeated_ids or is_compacted):
            for part in report.partitions:
                report.possibly_doubled += count_offsets(part.doubled)
                part.doubled = NO_RUNS
        if has_all_records:
            report.unknown_ids = strangers
        else:
            report.rows_of_no_record = strangers
        if report.request.sample:
            compare_staged(staging, report, "ids")


def _count_ids(staging: Staging) -> None:
    """Create ``ids``: each id with its numbers of rows and records, and the position of its first record."""
    staging.execute(
        "CREATE TABLE ids AS SELECT id, sum(is_row)::BIGINT AS rows, sum(1 - is_row)::BIGINT AS records, "  # noqa: S608
        'min(struct_pack("partition", position)) FILTER (is_row = 0) AS first FROM ('
        f'SELECT {staging.content_of_row(0)} AS id, 1 AS is_row, NULL::INTEGER AS "partition", '
        "NULL::BIGINT AS position FROM rows WHERE c0 IS NOT NULL "
        'UNION ALL SELECT c0, 0, "partition", position FROM records WHERE c0 IS NOT NULL) GROUP BY id'
    )


def _judge_partition(staging: Staging, part: PartitionReport, unread: Sequence[ClassifiedRange]) -> None:
    number = int(part.partition)
    matched = (
        'SELECT position FROM records JOIN ids ON c0 = id WHERE "partition" = '  # noqa: S608 - numbers
        f"{number} AND required AND rows"
    )
    part.missing = _positions(staging, f"SELECT position FROM ({matched} = 0)")  # noqa: S608 - as above
    part.doubled = _positions(
        staging,
        f'SELECT first.position FROM ids WHERE rows > records AND first."partition" = {number}',  # noqa: S608
    )
    part.undecided = _number(
        staging,
        f'SELECT count(*) FROM records WHERE "partition" = {number} AND required AND c0 IS NULL',  # noqa: S608
    )
    required = _number(staging, f'SELECT count(*) FROM records WHERE "partition" = {number} AND required')  # noqa: S608
    expected = part.expected
    for span in unread:
        count = max(0, min(span.end, expected.due) - max(span.begin, expected.begin))
        if span.absence in UNREAD:
            # Invariant: an offset needs no row only if its record is known to be none; one that was not read may be.
            part.undecided += count
            required += count
        elif count:
            part.absences[span.absence.value] += count
    part.expected = replace(expected, unused=expected.due - expected.begin - required)
    counted = f"SELECT count(*), max(position) FROM ({matched} > 0)"  # noqa: S608 - as above
    ((part.rows, newest),) = staging.query(counted)
    part.newest = -1 if newest is None else int(newest)


def _positions(staging: Staging, query: str) -> Runs:
    (positions,) = staging.arrays(query).values()
    return runs_of(np.unique(np.asarray(positions, np.int64)))


def _number(staging: Staging, query: str) -> int:
    return int(staging.query(query)[0][0])

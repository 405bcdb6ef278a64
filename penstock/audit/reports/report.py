"""The report of an audit as text for people. Start with ``lines``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from penstock.audit.outcome import PartitionReport, Report
from penstock.audit.reports.check_history import CAUTION, NO_VERSION
from penstock.audit.source import Record
from penstock.landing.offset_runs import Runs, count_offsets

MAX_RANGES = 20
"""Ranges and files of one kind that the text lists; the JSON document has all."""
MAX_BYTES = 60
ABSENCES = {
    "control": "control records",
    "aborted": "records of aborted transactions",
    "compacted": "records removed by compaction",
    "expired": "expired records",
    "undecided": "offsets behind an open transaction",
    "tombstone": "tombstones",
    "duplicate": "duplicates, whose uuid is at another offset",
    "chunk": "chunks of large messages",
    "dead_letter": "records in the dead letter topic",
    "deleted": "rows that Penstock deleted",
    "shifted": "records that earlier offsets stand for, which have no record",
}


def verdict(report: Report) -> str:
    """Return the first line: what is wrong, of how many records, and where."""
    problems = [
        f"{count:,} {text}"
        for count, text in (
            (report.missing, "missing"),
            (report.doubled, "doubled"),
            (report.unexplained, "that no committed record has"),
            (report.differing, "with another content"),
            (report.undecided, "that cannot be decided"),
        )
        if count
    ]
    checked = f"{report.required:,} records checked"
    if report.lost_files:
        count = len(report.lost_files)
        problems.append(f"{count:,} {_plural(count, 'file')} of the table lost")
    if report.differing_hours:
        problems.append(f"{report.differing_hours:,} {_plural(report.differing_hours, 'hour')} with another checksum")
    if not problems and report.request.times is not None:
        whole = f"{len(report.hours):,} whole {_plural(len(report.hours), 'hour')}"
        return f"{report.topic}: the counts agree: {checked}, in {whole}"
    if not problems:
        return f"{report.topic}: complete: {checked}, each {'at least ' if report.possibly_doubled else ''}once"
    partitions = [part.partition for part in report.partitions if part.has_findings]
    where = f"; {_plural(len(partitions), 'partition')} {', '.join(map(str, partitions))}" if partitions else ""
    return f"{report.topic}: {', '.join(problems)} of {checked}{where}{_when(report)}"


def _when(report: Report) -> str:
    """Return the time of missing records, in whole minutes, and of hours that differ; empty if none is known."""
    times = (part.missing_times for part in report.partitions if part.missing_times is not None)
    spans = [(first, last + 1) for first, last in times]
    wrong = (hour.hour for hour in report.hours if hour.records != hour.rows or not hour.is_equal)
    spans += [(hour * 3_600_000, (hour + 1) * 3_600_000) for hour in wrong]
    if not spans:
        return ""
    first, last = min(begin for begin, _ in spans) // 60_000, -(-max(end for _, end in spans) // 60_000)
    return f", {_minute(first)} to {_minute(last)} UTC"


def lines(report: Report, *, with_payloads: bool = True) -> Iterator[str]:
    """Yield the report as text; ``with_payloads``: with samples of records and contents."""
    yield verdict(report)
    yield from warnings(report)
    if not report.required and report.request.times is None and any(part.expected.end for part in report.partitions):
        yield "no record is required: all are younger than --grace, or outside of --since, --until or --group"
    yield ""
    version = f", version {report.version}" if report.version else ""
    yield f"table: {report.table} ({report.kind}{version}), {report.proof.text}"
    if report.proof.limits:
        yield f"this proof cannot see: {report.proof.limits}"
    if report.request.times is not None:
        yield from _hour_lines(report)
    else:
        for part in report.partitions:
            yield from _partition_lines(part, with_payloads)
    yield from report.intervals
    for name in report.lost_files[:MAX_RANGES]:
        yield f"the table refers to {name}, which does not exist"
    for cause in report.unsearched:
        yield f"not searched: {cause}"
    if report.compared:
        columns = ", ".join(str(pair) for pair in report.compared)
        yield f"content of {report.compared_records:,} records compared: {columns}"
    if report.repeated_ids:
        yield f"ids of several records, for which one row is enough here: {report.repeated_ids:,}"
    if report.unknown_ids:
        yield f"rows whose id no record has: {report.unknown_ids:,}"
    if report.rows_of_no_record:
        yield f"rows whose id no stored record has, which may have expired: {report.rows_of_no_record:,}"
    if report.possibly_doubled:
        yield f"ids with more rows than stored records, which may have had more records: {report.possibly_doubled:,}"
    if report.rows_of_other_topics:
        yield f"rows of other topics in the table: {report.rows_of_other_topics:,}"
    if report.rows_without_offset:
        what = "a time" if report.request.times else "an id" if report.request.ids else "an offset, partition or topic"
        yield f"rows without {what}, which cannot be checked: {report.rows_without_offset:,}"
    if report.rows_of_unknown_partitions:
        yield f"rows of partitions that the topic does not have: {report.rows_of_unknown_partitions:,}"
    if report.doubled and report.proof.columns:
        yield from _select_doubled(report)


def warnings(report: Report) -> Iterator[str]:
    """Yield what will go wrong: records that expire before the sink reads them."""
    for part in report.partitions:
        if part.lag is not None and part.lag.expires_unread:
            yield (
                f"partition {part.partition}: {part.lag.records:,} records are not in the table yet; the first of them "
                f"expires in {_duration(part.lag.expires_in_s)}, and the sink is {_duration(part.lag.behind_s)} behind"
            )


def _duration(seconds: float) -> str:
    if seconds < 0:
        return "no time"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def _partition_lines(part: PartitionReport, with_payloads: bool) -> Iterator[str]:
    expected = part.expected
    yield (
        f"partition {part.partition}: offsets {expected.begin:,} to {expected.due:,} must be there, "
        f"{part.rows:,} rows, newest offset {part.newest:,} of {expected.end - 1:,}"
    )
    for name, count in sorted(part.absences.items()):
        yield f"  need no row: {count:,} {ABSENCES.get(name, name)}"
    if part.undecided:
        yield f"  cannot be decided: {part.undecided:,} records that cannot be read, or whose id cannot"
    for name, ranges in (
        ("missing", part.missing),
        ("doubled", part.doubled),
        ("without a committed record", part.unexplained),
        ("different", part.differing),
    ):
        if len(ranges):
            yield f"  {name}: {count_offsets(ranges):,} in {_ranges(ranges)}"
    for loss in part.losses:
        yield f"    {count_offsets(loss.ranges):,} lost by {loss.commit}"
    for name, count in _first(part.orphans.items()):
        yield f"    {count:,} also in {name}, {NO_VERSION}"
    if part.orphans:
        yield f"    {CAUTION}"
    for name, commit in _first(part.doubled_in.items()):
        yield f"    doubled rows in {name}" + (f", added by {commit}" if commit else "")
    for name, count in sorted(part.differing_in.items()):
        yield f"    {name}: {count:,} different"
    if not with_payloads:
        return
    yield from (f"    {text}" for text in part.differences[:MAX_RANGES])
    yield from (f"    {_record_text(record)}" for record in part.evidence)


def _hour_lines(report: Report) -> Iterator[str]:
    yield f"whole hours compared: {len(report.hours):,}"
    wrong = [hour for hour in report.hours if hour.records != hour.rows or not hour.is_equal]
    for hour in wrong[:MAX_RANGES]:
        checksum = "" if hour.is_equal else ", another checksum"
        yield f"  {_hour(hour.hour)} UTC: {hour.records:,} records, {hour.rows:,} rows{checksum}"
    if len(wrong) > MAX_RANGES:
        yield f"  and {len(wrong) - MAX_RANGES:,} more hours"


def _record_text(record: Record) -> str:
    moment = (
        f" {datetime.fromtimestamp(record.timestamp / 1000, UTC):%Y-%m-%d %H:%M:%S}" if record.timestamp > 0 else ""
    )
    return f"record {record.partition}:{record.offset}{moment} key {_text(record.key)} value {_text(record.value)}"


def _select_doubled(report: Report) -> Iterator[str]:
    columns = ", ".join(report.proof.columns)
    yield f"doubled rows: SELECT {columns}, count(*) FROM table GROUP BY {columns} HAVING count(*) > 1"  # noqa: S608


def _ranges(ranges: Runs) -> str:
    texts = [str(begin) if end == begin + 1 else f"{begin} to {end - 1}" for begin, end in ranges[:MAX_RANGES].tolist()]
    return ", ".join(texts) + (f", and {len(ranges) - MAX_RANGES:,} more ranges" if len(ranges) > MAX_RANGES else "")


def _first(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return list(pairs)[:MAX_RANGES]


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data[:MAX_BYTES].decode(errors="replace")
    return repr(text) + ("..." if len(data) > MAX_BYTES else "")


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def _minute(minute: int) -> str:
    return f"{datetime.fromtimestamp(minute * 60, UTC):%Y-%m-%d %H:%M}"


def _hour(hour: int) -> str:
    return _minute(hour * 60)

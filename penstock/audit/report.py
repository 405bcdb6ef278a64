"""The report of an audit, as text for people and as a JSON document that repeats the check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from penstock.audit.audit import PartitionReport, Report
from penstock.audit.kafka_source import Record
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
}


def verdict(report: Report) -> str:
    """Return the first line: what is wrong, of how many records, and where."""
    problems = [
        f"{count:,} {text}"
        for count, text in (
            (report.missing, "missing"),
            (report.doubled, "doubled"),
            (report.unexplained, "that the topic never had"),
            (report.undecided, "that cannot be decided"),
        )
        if count
    ]
    checked = f"{report.required:,} records checked"
    if not problems:
        return f"{report.topic}: complete: {checked}, each once"
    partitions = [part.partition for part in report.partitions if part.has_findings]
    where = f"; {_plural(len(partitions), 'partition')} {', '.join(map(str, partitions))}" if partitions else ""
    hours = sorted({hour for part in report.partitions for hour in part.missing_by_hour})
    when = f", {_hour(hours[0])} to {_hour(hours[-1] + 1)} UTC" if hours else ""
    return f"{report.topic}: {', '.join(problems)} of {checked}{where}{when}"


def lines(report: Report) -> Iterator[str]:
    """Yield the report as text."""
    yield verdict(report)
    yield ""
    version = f", version {report.version}" if report.version else ""
    proof = f"by column {report.columns.offset}" + (
        f" and {report.columns.partition}" if report.columns.partition else ""
    )
    yield f"table: {report.table} ({report.kind}{version}), {proof}"
    for part in report.partitions:
        yield from _partition_lines(part)
    if report.rows_of_other_topics:
        yield f"rows of other topics in the table: {report.rows_of_other_topics:,}"
    if report.rows_without_offset:
        yield f"rows without an offset, which cannot be checked: {report.rows_without_offset:,}"
    if report.rows_of_unknown_partitions:
        yield f"rows of partitions that the topic does not have: {report.rows_of_unknown_partitions:,}"
    if report.doubled:
        yield from _select_doubled(report)


def _partition_lines(part: PartitionReport) -> Iterator[str]:
    expected = part.expected
    yield (
        f"partition {part.partition}: offsets {expected.begin:,} to {expected.due:,} must be there, "
        f"{part.rows:,} rows, newest offset {part.newest:,} of {expected.end - 1:,}"
    )
    for name, count in sorted(part.absences.items()):
        yield f"  need no row: {count:,} {ABSENCES.get(name, name)}"
    if part.undecided:
        yield f"  cannot be decided: {part.undecided:,} offsets whose record batches cannot be read"
    for name, ranges in (
        ("missing", part.missing),
        ("doubled", part.doubled),
        ("unknown to the topic", part.unexplained),
    ):
        if len(ranges):
            yield f"  {name}: {count_offsets(ranges):,} in {_ranges(ranges)}"
    for loss in part.losses:
        yield f"    {count_offsets(loss.ranges):,} lost by {loss.commit}"
    for name, count in _first(part.orphans.items()):
        yield f"    {count:,} recoverable from {name}, a file of no version"
    for name, commit in _first(part.doubled_in.items()):
        yield f"    doubled rows in {name}" + (f", added by {commit}" if commit else "")
    yield from (f"    {_record_text(record)}" for record in part.evidence)


def _record_text(record: Record) -> str:
    moment = (
        f" {datetime.fromtimestamp(record.timestamp / 1000, UTC):%Y-%m-%d %H:%M:%S}" if record.timestamp > 0 else ""
    )
    return f"record {record.partition}:{record.offset}{moment} key {_text(record.key)} value {_text(record.value)}"


def _select_doubled(report: Report) -> Iterator[str]:
    columns = ", ".join(name for name in (report.columns.partition, report.columns.offset) if name)
    yield f"doubled rows: SELECT {columns}, count(*) FROM table GROUP BY {columns} HAVING count(*) > 1"  # noqa: S608


def document(report: Report) -> dict[str, Any]:
    """Return the report as a JSON-ready mapping, without payloads."""
    return {
        "verdict": verdict(report),
        "status": report.status,
        "topic": report.topic,
        "table": report.table,
        "kind": report.kind,
        "version": report.version,
        "columns": asdict(report.columns),
        "began": datetime.fromtimestamp(report.began_s, UTC).isoformat(),
        "required": report.required,
        "missing": report.missing,
        "doubled": report.doubled,
        "unexplained": report.unexplained,
        "undecided": report.undecided,
        "rows_of_other_topics": report.rows_of_other_topics,
        "rows_without_offset": report.rows_without_offset,
        "rows_of_unknown_partitions": report.rows_of_unknown_partitions,
        "partitions": [_partition_document(part) for part in report.partitions],
    }


def _partition_document(part: PartitionReport) -> dict[str, Any]:
    expected = part.expected
    return {
        "partition": part.partition,
        "log_start": expected.start,
        "log_end": expected.end,
        "begin": expected.begin,
        "due": expected.due,
        "rows": part.rows,
        "newest": part.newest,
        "missing": part.missing.tolist(),
        "doubled": part.doubled.tolist(),
        "unexplained": part.unexplained.tolist(),
        "absences": dict(part.absences),
        "undecided": part.undecided,
        "missing_by_hour": {_iso_hour(hour): count for hour, count in sorted(part.missing_by_hour.items())},
        "losses": [{"commit": loss.commit, "ranges": loss.ranges.tolist()} for loss in part.losses],
        "doubled_in": part.doubled_in,
        "orphans": part.orphans,
    }


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


def _hour(hour: int) -> str:
    return f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%d %H:00}"


def _iso_hour(hour: int) -> str:
    return datetime.fromtimestamp(hour * 3600, UTC).isoformat()

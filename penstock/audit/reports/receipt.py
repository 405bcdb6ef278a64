"""The receipt of an audit: a JSON document with everything that repeats the check, without payloads and credentials."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.audit.fields import parse_pair
from penstock.audit.outcome import PartitionReport, Report, Request
from penstock.audit.reports.report import verdict
from penstock.errors import PenstockError

FORMAT = 1


class UnreadableReceipt(PenstockError, ValueError):
    """The file is not a receipt of an audit."""


def document(report: Report) -> dict[str, Any]:
    """Return the receipt as a JSON-ready mapping."""
    return {
        "format": FORMAT,
        "verdict": verdict(report),
        "status": report.status,
        "topic": report.topic,
        "table": report.table,
        "kind": report.kind,
        "version": report.version,
        "source": report.source,
        "brokers": urlsplit(report.source).netloc,
        "columns": asdict(report.columns),
        "proof": report.proof.text,
        "cannot_see": report.proof.limits,
        "options": {
            "grace_s": report.request.grace_s,
            "since_s": report.request.since_s,
            "until_s": report.request.until_s,
            "group": report.request.group,
            "counts_tombstones": report.request.counts_tombstones,
            "dead_letter": report.request.dead_letter,
            "id": str(report.request.ids or ""),
            "time": str(report.request.times or ""),
            "compare": [str(pair) for pair in report.request.compared],
            "sample": report.request.sample,
            "decoder": report.request.decoder,
        },
        "began": datetime.fromtimestamp(report.began_s, UTC).isoformat(),
        "required": report.required,
        "missing": report.missing,
        "doubled": report.doubled,
        "unexplained": report.unexplained,
        "undecided": report.undecided,
        "rows_of_other_topics": report.rows_of_other_topics,
        "rows_without_offset": report.rows_without_offset,
        "rows_of_unknown_partitions": report.rows_of_unknown_partitions,
        "unknown_ids": report.unknown_ids,
        "rows_of_no_record": report.rows_of_no_record,
        "repeated_ids": report.repeated_ids,
        "possibly_doubled": report.possibly_doubled,
        "differing": report.differing,
        "differing_hours": report.differing_hours,
        "lost_files": report.lost_files,
        "unsearched": report.unsearched,
        "compared": [str(pair) for pair in report.compared],
        "compared_records": report.compared_records,
        "hours": [
            {"hour": _iso_hour(hour.hour), "records": hour.records, "rows": hour.rows, "checksum_equal": hour.is_equal}
            for hour in report.hours
        ],
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
        "counted": part.counted,
        "rows": part.rows,
        "newest": part.newest,
        "missing": part.missing.tolist(),
        "doubled": part.doubled.tolist(),
        "unexplained": part.unexplained.tolist(),
        "absences": dict(part.absences),
        "undecided": part.undecided,
        "missing_by_hour": {_iso_hour(hour): count for hour, count in sorted(part.missing_by_hour.items())},
        "differing": part.differing.tolist(),
        "differing_in": dict(part.differing_in),
        "losses": [{"commit": loss.commit, "ranges": loss.ranges.tolist()} for loss in part.losses],
        "doubled_in": part.doubled_in,
        "orphans": part.orphans,
    }


def _iso_hour(hour: int) -> str:
    return datetime.fromtimestamp(hour * 3600, UTC).isoformat()


def read_receipt(path: Path) -> Mapping[str, Any]:
    """Return the document of a file. Raises UnreadableReceipt."""
    try:
        receipt = json.loads(path.read_text())
        if receipt["format"] != FORMAT:
            raise UnreadableReceipt(f"{path} has the format {receipt['format']!r}; this version reads {FORMAT}")
        request_to_repeat(receipt)
    except OSError as error:
        raise UnreadableReceipt(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, UnreadableReceipt):
            raise
        raise UnreadableReceipt(f"{path} is not a receipt of an audit: {error!r}") from None
    return receipt  # type: ignore[no-any-return]


def request_to_repeat(receipt: Mapping[str, Any]) -> Request:
    """Return the request that checks the same offsets of the same version. Raises KeyError, TypeError, ValueError."""
    columns, options = receipt["columns"], receipt["options"]
    request = Request(
        offset=str(columns["offset"]),
        partition=str(columns["partition"]),
        topic_column=str(columns["topic"]),
        grace_s=float(options["grace_s"]),
        since_s=_optional_float(options.get("since_s")),
        until_s=_optional_float(options.get("until_s")),
        counts_tombstones=bool(options["counts_tombstones"]),
        dead_letter=str(options["dead_letter"]),
        ids=parse_pair(str(options["id"])) if options["id"] else None,
        times=parse_pair(str(options["time"])) if options["time"] else None,
        compared=tuple(parse_pair(str(pair)) for pair in options["compare"]),
        sample=int(options["sample"]),
        spans={
            int(part["partition"]): (int(part["begin"]), int(part["due"]), int(part["log_end"]))
            for part in receipt["partitions"]
        },
        counted={
            int(part["partition"]): (int(part["counted"][0]), int(part["counted"][1]))
            for part in receipt["partitions"]
            if part.get("counted")
        },
        began_s=datetime.fromisoformat(receipt["began"]).timestamp(),
    )
    for name in ("topic", "source", "table", "version"):
        if not isinstance(receipt[name], str):
            raise TypeError(f"{name} is not a text")
    return request


def _optional_float(number: Any) -> float | None:
    return None if number is None else float(number)


def differences(receipt: Mapping[str, Any], report: Report) -> Iterator[str]:
    """Yield how a repeated audit differs from its receipt; nothing if both agree."""
    repeated = {part["partition"]: part for part in document(report)["partitions"]}
    if receipt["version"] != report.version:
        yield f"the receipt is of version {receipt['version'] or '?'}, and this check of {report.version or '?'}"
    if receipt["hours"] != document(report)["hours"]:
        yield "the counts by hour are different"
    for part in receipt["partitions"]:
        repeated_part = repeated.get(part["partition"])
        if repeated_part is None:
            yield f"partition {part['partition']} no longer exists"
            continue
        if (begin := repeated_part["begin"]) > part["begin"]:
            yield f"partition {part['partition']}: offsets {part['begin']:,} to {begin:,} have expired since"
        for name in ("missing", "doubled", "unexplained", "undecided", "differing"):
            if part[name] != repeated_part[name]:
                former, current = _shorten(part[name]), _shorten(repeated_part[name])
                yield f"partition {part['partition']}: {name} was {former} and is {current}"


def _shorten(ranges: Any, limit: int = 200) -> str:
    text = json.dumps(ranges)
    return text if len(text) <= limit else f"{text[:limit]}..."

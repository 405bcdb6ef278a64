"""The checks of audits, recorded for the console and the alarms of a Penstock on the same machine.

One small file per audit, replaced after each check: the outcome of the last check, without payloads and credentials,
and the verdicts of earlier ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.files.file_system import make_folder

if TYPE_CHECKING:
    from penstock.audit.outcome import PartitionReport, Report
    from penstock.landing.offset_runs import Runs

MAX_VERDICTS = 200
MAX_PARTITIONS = 100
"""Limit: partitions that a record has, those with findings first."""
MAX_RANGES, MAX_HOURS = 20, 48
MAX_AUDITS = 1000
NO_VERSION = "a file of no version that was searched"
CAUTION = "check before you add such a file: a writer may be about to commit it, or an expired version had it"
"""Advice: a file that is added and then committed by its writer doubles its rows; rows of an expired version may have
been deleted.
"""
UNREADABLE = (OSError, DamagedFile, UnknownFormat, KeyError, TypeError, ValueError, AttributeError)


class CheckHistory:
    """The record of one audit in ``folder``. ``every_s``: interval of the checks; 0 if they are not repeated.

    ``identity``: texts without secrets that distinguish the audit from others.
    """

    def __init__(self, folder: Path, identity: Sequence[str], every_s: float = 0.0) -> None:
        self._folder, self._every_s = folder, every_s
        self._path = folder / f"{hashlib.sha256(json.dumps(list(identity)).encode()).hexdigest()[:16]}.json"

    def record(self, report: Report) -> None:
        """Record a finished check. Raises OSError."""
        from penstock.audit.reports.report import verdict, warnings

        parts = sorted(report.partitions, key=lambda part: (not part.has_findings, part.partition))
        outcome = {
            "topic": report.topic,
            "source": report.source,
            "table": report.table,
            "kind": report.kind,
            "version": report.version,
            "proof": report.proof.text,
            "warnings": list(warnings(report)),
            "partitions": [_partition(part) for part in parts[:MAX_PARTITIONS]],
            "left_out": max(0, len(parts) - MAX_PARTITIONS),
            "hours": [
                [hour.hour * 3600, hour.records, hour.rows]
                for hour in report.hours
                if hour.records != hour.rows or not hour.is_equal
            ][:MAX_HOURS],
        }
        self._write(outcome, report.status, verdict(report), report.began_s)

    def record_undecided(self, topic: str, source: str, table: str, reason: str) -> None:
        """Record a check that could not be decided; findings of the check before would mislead. Raises OSError."""
        with contextlib.suppress(*UNREADABLE):
            # Only a readable source table names its topic; under another one the alarm of the check before would end.
            topic = read_document(self._path)["topic"]
        outcome = {"topic": topic, "source": source, "table": table, "partitions": [], "hours": [], "warnings": []}
        self._write(outcome, 2, f"{topic}: not decided: {reason}", time.time())

    def _write(self, outcome: Mapping[str, Any], status: int, verdict: str, at_s: float) -> None:
        earlier: list[Any] = []
        with contextlib.suppress(*UNREADABLE):
            earlier = list(read_document(self._path)["checks"])
        check = {"at_s": at_s, "status": status, "verdict": verdict}
        checks = [check, *earlier][:MAX_VERDICTS]
        make_folder(self._folder)
        write_document(self._path, {**outcome, **check, "every_s": self._every_s, "checks": checks})


def read_histories(folder: Path) -> list[dict[str, Any]]:
    """Return the records in a folder, the worst first; damaged ones are left out."""
    histories = []
    for path in islice(sorted(folder.glob("*.json")), MAX_AUDITS):
        with contextlib.suppress(*UNREADABLE):
            histories.append(read_document(path))
    # A finding is worse than a check without a decision, which is worse than a complete table.
    return sorted(histories, key=lambda audit: ((1, 2, 0).index(audit["status"]), audit["topic"], audit["table"]))


def _partition(part: PartitionReport) -> dict[str, Any]:
    return {
        "partition": part.partition,
        "begin": part.expected.begin,
        "due": part.expected.due,
        "rows": part.rows,
        "missing": _ranges(part.missing),
        "doubled": _ranges(part.doubled),
        "unexplained": _ranges(part.unexplained),
        "differing": _ranges(part.differing),
        "undecided": part.undecided,
        "absences": dict(part.absences),
        "missing_by_hour": [[hour * 3600, count] for hour, count in sorted(part.missing_by_hour.items())][:MAX_HOURS],
        "lost_by": list(dict.fromkeys(loss.commit for loss in part.losses))[:MAX_RANGES],
        "doubled_in": list(islice(part.doubled_in.items(), MAX_RANGES)),
        "orphans": list(islice(part.orphans.items(), MAX_RANGES)),
    }


def _ranges(ranges: Runs) -> dict[str, Any]:
    """Return the number of offsets, the first ranges and how many ranges there are."""
    from penstock.landing.offset_runs import count_offsets

    return {"offsets": count_offsets(ranges), "first": ranges[:MAX_RANGES].tolist(), "ranges": len(ranges)}

"""Metrics from files that other processes wrote on this machine: audits, contracts of typed tables, and exports.

A missing or damaged file yields no sample.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping

from penstock.config import Settings
from penstock.files.checked_document import read_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.server.metrics.prometheus import Family

MAX_AUDITS = 1000
"""Limit: recorded audits that have metrics."""
AUDIT_SEVERITY = (1, 2, 0)
"""Outcomes of an audit, the worst first."""


def audit_families(settings: Settings) -> list[Family]:
    """Return outcome and due time of each audit, as ``penstock audit --config`` recorded them on this machine."""
    outcomes: dict[tuple[str, str], float] = {}
    due: dict[tuple[str, str], float] = {}
    for path in itertools.islice(sorted(settings.audits.glob("*.json")), MAX_AUDITS):
        with contextlib.suppress(OSError, DamagedFile, UnknownFormat, KeyError, TypeError, ValueError):
            record = read_document(path)
            labels = str(record["topic"]), str(record["table"])
            status, every_s, at_s = int(record["status"]), float(record["every_s"]), float(record["at_s"])
            # Several audits of a topic and a table are one sample: the worst outcome, and the time that is due first.
            outcomes[labels] = min(outcomes.get(labels, status), status, key=AUDIT_SEVERITY.index)
            if every_s:
                due[labels] = min(due.get(labels, math.inf), at_s + 2 * every_s)
    return [
        Family(
            "penstock_audit_status",
            "gauge",
            "Audit: 0 complete, 1 missing or doubled, 2 not decided",
            _audit_samples(outcomes),
        ),
        Family(
            "penstock_audit_due_timestamp_seconds", "gauge", "Time by which an audit checks again", _audit_samples(due)
        ),
    ]


def _audit_samples(numbers: Mapping[tuple[str, str], float]) -> list[tuple[dict[str, str], float]]:
    return [({"topic": topic, "table": table}, number) for (topic, table), number in numbers.items()]


def contract_family(settings: Settings) -> Family:
    """Return values of events that violate a contract and are in ``rest``, as the pipeline on this machine counted."""
    samples: list[tuple[dict[str, str], float]] = []
    with contextlib.suppress(OSError, DamagedFile, KeyError, TypeError, ValueError, AttributeError):
        for reason, count in read_document(settings.contracts)["violations"].items():
            _, table, column, rule = reason.split(".")
            samples.append(({"table": table, "column": column, "rule": rule}, int(count)))
    help_text = "Values in the column rest of a typed table because they violate a rule of their column"
    return Family("penstock_contract_violations_total", "counter", help_text, samples)


def export_family(settings: Settings) -> Family:
    """Return the time of each configured export, as the pipeline on this machine wrote it."""
    times: list[tuple[dict[str, str], float]] = []
    for export in settings.export:
        with contextlib.suppress(OSError, DamagedFile, KeyError, TypeError, ValueError):
            state = read_document(settings.export_states / f"{export.name}.json")
            times.append(({"export": export.name}, float(state["at"])))
    return Family("penstock_export_timestamp_seconds", "gauge", "Time up to which an export has all rows", times)

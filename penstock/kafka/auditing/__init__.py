"""Auditing of Kafka messages: who counts what was sent and read, and where the counts go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.kafka.auditing.auditor import Auditor, AuditType, NoOpAuditor
from penstock.kafka.auditing.interval_auditor import AbstractAuditor, BadAuditorSetting
from penstock.kafka.auditing.ledger_auditor import LedgerAuditor
from penstock.kafka.auditing.log_auditor import LoggingAuditor
from penstock.kafka.auditing.stats import AuditKey, AuditStats, CountingAuditStats, StatsClosed
from penstock.kafka.client.plugins import CannotLoad, load

__all__ = [
    "AUDITORS",
    "AbstractAuditor",
    "AuditKey",
    "AuditStats",
    "AuditType",
    "Auditor",
    "BadAuditorSetting",
    "CountingAuditStats",
    "LedgerAuditor",
    "LoggingAuditor",
    "NoOpAuditor",
    "StatsClosed",
    "load_auditor",
]

AUDITORS = "penstock.kafka.auditors"
OWN: Mapping[str, type[Auditor]] = {
    "NoOpAuditor": NoOpAuditor,
    "LoggingAuditor": LoggingAuditor,
    "LedgerAuditor": LedgerAuditor,
    "none": NoOpAuditor,
    "logging": LoggingAuditor,
    "ledger": LedgerAuditor,
}


def load_auditor(given: Any, config: Mapping[str, Any]) -> Auditor:
    """What ``auditor.class`` names, configured and not yet started; None is NoOpAuditor. Raises CannotLoad."""
    if given is None:
        return NoOpAuditor()
    made = load("auditor.class", given, AUDITORS, OWN, config)
    if not isinstance(made, Auditor):
        raise CannotLoad(f"auditor.class: {made!r} is not an Auditor")
    return made

"""Audit Kafka messages: count what clients send and read, and report the counts.

Read ``auditor`` (the interface), ``stats``, ``interval_auditor``, then ``log_auditor`` and ``ledger_auditor``.
Imports ``errors``, ``counts`` and ``process``; ``client.plugins.loading`` creates the auditor that a
configuration names.
"""

from penstock.kafka.auditing.auditor import Auditor, AuditType, NoOpAuditor
from penstock.kafka.auditing.interval_auditor import AbstractAuditor, BadAuditorSetting
from penstock.kafka.auditing.ledger_auditor import LedgerAuditor
from penstock.kafka.auditing.log_auditor import LoggingAuditor
from penstock.kafka.auditing.stats import AuditKey, AuditStats, CountingAuditStats, StatsClosed

__all__ = [
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
]

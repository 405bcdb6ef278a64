"""The pages of the console, one module each.

Read ``overview``, the first page, then any other, and ``panels``, the parts of pages with a module of their own.
Imports ``console``, ``config``, ``client``, ``landing``, ``proof``, ``upkeep``, ``sql``, ``audit`` and ``ledger``.
"""

__all__ = [  # noqa: RUF022 reading order
    "overview",
    "listeners",
    "senders",
    "topics",
    "topic",
    "pipeline",
    "quarantine",
    "find",
    "sql",
    "table",
    "kafka",
    "alarms",
    "audits",
    "configuration",
    "not_found",
    "panels",
]

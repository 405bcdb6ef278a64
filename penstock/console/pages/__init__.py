"""The pages of the console, one module each.

Read ``overview``, the first page, with ``receipt``, then any other. Imports ``console``, ``config``, ``client``,
``landing``, ``proof``, ``upkeep``, ``sql``, ``audit`` and ``ledger``.
"""

__all__ = [  # noqa: RUF022 reading order
    "overview",
    "receipt",
    "listeners",
    "senders",
    "topics",
    "topic",
    "send_message",
    "pipeline",
    "quarantine",
    "send_back",
    "find",
    "sql",
    "table",
    "kafka",
    "alarms",
    "audits",
    "configuration",
    "not_found",
]

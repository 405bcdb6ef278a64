"""Completeness audits of foreign pipelines: whether every record of a topic is in a table, once.

Read ``audit`` (the whole check) and ``outcome`` (its options and findings), then ``source`` with ``open_source``,
``kafka_source``, ``log_source`` and ``table_source`` (which records a table must have), ``offset_ranges`` (which
offsets a table has), ``columns`` (where it keeps them) and ``tables`` (one class per kind of table). Tables without
offsets are matched ``by_ids`` or ``by_counts``; ``content`` compares rows with records. They use ``fields``,
``decoder`` (values that are no JSON), ``dead_letters``, ``staging`` and ``pace`` (the text of their progress).
``report`` and ``html_report`` are for people, ``receipt`` repeats a check, then ``redelivery``, ``watch`` (metrics of
a check that is repeated) and ``check_history`` (its record for the console). Nothing is written on either side, unless
a redelivery is asked for: no consumer group, no commit, no table property. Imports ``files``, ``kafka``, ``client``,
``landing``, ``log``, ``proof``, ``records`` and ``server.metrics``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.audit.tables.table import AuditedTable, TableUnreadable
else:
    __getattr__ = lazy_names(__name__, dict.fromkeys(("AuditedTable", "TableUnreadable"), "tables.table"))

__all__ = [  # noqa: RUF022 reading order
    "AuditedTable",
    "TableUnreadable",
    "audit",
    "outcome",
    "source",
    "open_source",
    "kafka_source",
    "log_source",
    "table_source",
    "offset_ranges",
    "columns",
    "tables",
    "by_ids",
    "by_counts",
    "content",
    "fields",
    "decoder",
    "dead_letters",
    "staging",
    "pace",
    "report",
    "html_report",
    "receipt",
    "redelivery",
    "watch",
    "check_history",
]

"""Completeness audits of foreign pipelines: whether every record of a topic is in a table, once.

Read ``audit`` (the whole check) and ``outcome`` (its options and findings), then ``source`` with the folder ``sources``
(which records a table must have), ``offset_ranges`` (which offsets a table has), ``columns`` (where it keeps them) and
``tables`` (one class per kind of table). Tables without offsets are compared by ``fields``, in ``matching``; ``pace``
is the text of their progress. ``reports`` has the results, and ``redelivery`` sends missing records again.
Nothing is written on either side, unless a redelivery is asked for: no consumer group, no commit, no table property.
Imports ``files``, ``kafka``, ``client``, ``landing``, ``log``, ``proof``, ``records`` and ``server.metrics``.
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
    "sources",
    "offset_ranges",
    "columns",
    "tables",
    "fields",
    "matching",
    "pace",
    "reports",
    "redelivery",
]

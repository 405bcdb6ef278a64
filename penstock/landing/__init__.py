"""What becomes of a micro-batch, and the proof that nothing of it was lost; everything that needs no pyspark.

Read ``table_paths``, ``event_rules``, ``table_schema``, ``history`` and ``journal`` (what was committed),
``landing_lock``, ``row_counts``, ``status``, ``checkpoint_repair``, ``daemon_connection``, ``watermarks``, then the
folders: where rows come from (``topics``, ``from_kafka``), what becomes of them (``rows``, ``transform``,
``duplicates``, ``writing``), the ``table``, the ``proof``, ``deletion``, ``backfill``, ``promote``, ``quarantine`` and
``trace``. Imports ``wire``, ``log``, ``kafka``, ``ledger``, ``client`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "table_paths",
    "event_rules",
    "table_schema",
    "history",
    "journal",
    "landing_lock",
    "row_counts",
    "status",
    "checkpoint_repair",
    "daemon_connection",
    "topics",
    "from_kafka",
    "rows",
    "transform",
    "duplicates",
    "writing",
    "table",
    "proof",
    "deletion",
    "backfill",
    "promote",
    "quarantine",
    "trace",
]

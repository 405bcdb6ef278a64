"""What becomes of a micro-batch, and the proof that nothing of it was lost; everything that needs no pyspark.

Read ``table_paths``, ``offset_runs``, ``event_rules``, ``table_schema``, ``history`` and ``journal`` (what was
committed), ``landing_lock``, ``row_counts``, ``status``, ``checkpoint_repair``, ``daemon_connection``,
``watermarks``, then the folders: where rows come from (``topics``, ``from_kafka``), where tables are (``storage``),
what becomes of rows (``rows``, ``transform``, ``duplicates``, ``writing``), the ``table``, ``typed`` tables beside
it, the ``proof``, ``deletion``, ``backfill``, ``promote``, ``quarantine`` and ``trace``. Imports ``wire``, ``log``,
``kafka``, ``ledger``, ``client`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "table_paths",
    "offset_runs",
    "event_rules",
    "table_schema",
    "history",
    "journal",
    "landing_lock",
    "row_counts",
    "status",
    "checkpoint_repair",
    "daemon_connection",
    "storage",
    "topics",
    "from_kafka",
    "rows",
    "transform",
    "duplicates",
    "writing",
    "table",
    "typed",
    "proof",
    "deletion",
    "backfill",
    "promote",
    "quarantine",
    "trace",
]

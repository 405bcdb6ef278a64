"""From batches of messages to committed batches of rows, and the formats of the pipeline's files; without pyspark.

Read ``table_paths``, ``offset_runs``, ``event_rules``, ``table_schema``, ``md5_columns``, ``row_hashes``, ``row_sums``,
``history``, ``journal`` (committed batches) and ``spark_checkpoint``, ``damaged_files``, ``landing_lock``,
``mirror_lag``, ``daemon_connection``, then the folders: sources of messages (``topics``, ``from_kafka``), files of
tables (``storage``), the way of rows (``rows``, ``transform``, ``duplicates``, ``writing``), the ``table``, ``typed``
tables, and ``requests`` for other work on tables.
Imports ``wire``, ``log``, ``kafka``, ``ledger``, ``client`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "table_paths",
    "offset_runs",
    "event_rules",
    "table_schema",
    "md5_columns",
    "row_hashes",
    "row_sums",
    "history",
    "journal",
    "spark_checkpoint",
    "damaged_files",
    "landing_lock",
    "mirror_lag",
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
    "requests",
]

"""From a batch of messages to a committed batch of rows, and the formats of the pipeline's files; no pyspark.

Read ``table_paths``, ``offset_runs``, ``event_rules``, ``table_schema``, ``history`` and ``journal`` (what was
committed), ``landing_lock``, ``daemon_connection``, then the folders: where rows come from (``topics``,
``from_kafka``), where tables are (``storage``), what becomes of rows (``rows``, ``transform``, ``duplicates``,
``writing``), the ``table``, ``typed`` tables beside it, and ``requests`` for other work on it. Imports ``wire``,
``log``, ``kafka``, ``ledger``, ``client`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "table_paths",
    "offset_runs",
    "event_rules",
    "table_schema",
    "history",
    "journal",
    "landing_lock",
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

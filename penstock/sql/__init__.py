"""The tables and the log asked with SQL, in one answer and without Spark: DuckDB on the files as they are.

Read ``tables`` (what can be asked), ``cut`` (the table as of one batch), ``log_tail`` (what of the log has not
landed), ``query`` (both as views of DuckDB), ``search`` (for a text), ``quarantined``, ``answers`` (for people and
programs), ``configured``. Imports ``landing``, ``tables``, ``process`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "tables",
    "cut",
    "log_tail",
    "query",
    "search",
    "quarantined",
    "answers",
    "configured",
]

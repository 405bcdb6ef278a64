"""SQL over the tables and the log in one answer, without Spark: DuckDB on the files.

Start with ``tables`` (the queryable tables and topics), ``catalog`` (their columns and types) and ``query`` (both as
views of DuckDB). ``cut`` takes the table as of one batch, ``log_tail`` adds the rows of the log that have not landed;
``search`` and ``quarantined`` with ``quarantine_states`` are built on queries, ``answers`` formats results, and
``configured`` starts from settings, ``error_text`` words errors. ``servers`` is a process that serves queries to
clients of PostgreSQL (``postgres``) and of Arrow Flight SQL (``flight_sql``). Imports
``log``, ``landing``, ``proof``, ``upkeep``, ``tables``, ``process`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "tables",
    "catalog",
    "cut",
    "log_tail",
    "query",
    "search",
    "quarantine_states",
    "quarantined",
    "answers",
    "configured",
    "error_text",
    "servers",
    "postgres",
    "flight_sql",
]

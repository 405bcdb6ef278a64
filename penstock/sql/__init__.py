"""The tables and the log asked with SQL, in one answer and without Spark: DuckDB on the files as they are.

Read ``cut`` (the table as of one batch), ``log_tail`` (what of the log has not landed), ``query`` (both as views of
DuckDB). Imports ``landing``.
"""

__all__ = ["cut", "log_tail", "query"]

"""Tables as lists of files: read which files a table has, and commit more.

Read ``table_file`` (how rows are read), ``delta_table`` (files, batches and commits) with ``features`` and
``one_writer``, ``landed_table`` (format version), ``plain_session``, ``row_counts``. Imports ``landing``.
"""

__all__ = [  # noqa: RUF022 reading order
    "table_file",
    "delta_table",
    "features",
    "one_writer",
    "landed_table",
    "plain_session",
    "row_counts",
]

"""Tables as lists of files: read which files a table has, and commit more.

Read ``table_file`` (how rows are read), ``table_reader`` (files, batches, other programs' commits) with
``file_entries`` and ``deletion_vectors`` (of files that are listed several times), ``delta_table`` (own commits) with
``features``, ``synced_files`` and ``one_writer``, ``landed_table`` (format version), ``plain_session``,
``row_counts``. Imports ``landing``.
"""

__all__ = [  # noqa: RUF022 reading order
    "table_file",
    "table_reader",
    "file_entries",
    "deletion_vectors",
    "delta_table",
    "features",
    "synced_files",
    "one_writer",
    "landed_table",
    "plain_session",
    "row_counts",
]

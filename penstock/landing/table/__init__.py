"""The table as a list of files: which there are, which batch brought them, and the commit of more.

Read ``table_files`` (what a table is), ``table_file`` (how rows are read), ``delta_table`` with
``one_writer``, ``begun_table`` (whether a folder has one), ``plain_session``, ``row_counts``.
Imports ``landing``.
"""

__all__ = ["table_files", "table_file", "delta_table", "one_writer", "begun_table", "plain_session", "row_counts"]  # noqa: RUF022 reading order

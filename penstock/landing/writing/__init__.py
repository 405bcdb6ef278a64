"""Messages into the files of the table, and their commit.

Read ``part_writer`` (what a task does), ``written_file``, ``batch_commit`` (what the driver does),
``background_commit``.
Imports ``landing``, ``landing.storage``, ``landing.rows``, ``landing.transform``, ``landing.duplicates``,
``landing.table`` and ``landing.topics``.
"""

__all__ = ["part_writer", "written_file", "batch_commit", "background_commit"]  # noqa: RUF022 reading order

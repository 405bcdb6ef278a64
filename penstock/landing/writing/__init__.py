"""Files of the table, written from messages, and their commit.

Read ``part_writer`` (the work of a task), ``written_file``, ``batch_commit`` (the work of the driver),
``background_commit``. Imports ``handover.landing_failure``, ``landing``, ``landing.storage``, ``landing.rows``,
``landing.transform``, ``landing.duplicates``, ``landing.table`` and ``landing.topics``.
"""

__all__ = ["part_writer", "written_file", "batch_commit", "background_commit"]  # noqa: RUF022 reading order

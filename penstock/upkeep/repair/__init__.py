"""Repair of the tables and of Spark's checkpoint: damaged files are found, and replaced by files with the same rows.

Read ``checkpoint_repair`` (before each start) with ``checkpoint_rebuild``; ``scrub`` (checks all files) with
``unreadable_files`` (what stays), ``restore`` (replaces a damaged one), ``reread_rows``, ``lost_column``,
``former_origins`` and ``other_rows``.
Imports ``landing``, ``proof``, ``kafka.origin_header``, ``log.topic_patterns`` and ``upkeep``.
"""

__all__ = [  # noqa: RUF022 reading order
    "checkpoint_repair",
    "checkpoint_rebuild",
    "scrub",
    "unreadable_files",
    "restore",
    "reread_rows",
    "lost_column",
    "former_origins",
    "other_rows",
]

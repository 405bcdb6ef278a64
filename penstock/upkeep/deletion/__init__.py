"""Delete rows of the table, each deletion once: requested ones, and rows past their retention.

Start with ``removal``; ``typed_removal`` deletes from typed tables, ``foreign`` accounts for rows that other programs
deleted; ``certificate`` says what was removed where. The format of requests and records is ``landing.requests``.
Imports ``landing``, ``proof`` and ``upkeep.compaction``.
"""

__all__ = ["removal", "typed_removal", "foreign", "certificate"]  # noqa: RUF022 reading order

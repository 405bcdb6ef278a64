"""Delete rows of the table, each deletion once: requested ones, and rows past their retention.

Start with ``removal``; ``typed_removal`` deletes from typed tables, ``foreign`` accounts for rows that other programs
deleted, ``returned_rows`` deletes rows again that they brought back; ``certificate`` says what was removed where. The
format of requests and records is ``landing.requests``.
Imports ``landing``, ``proof`` and ``upkeep.compaction``.
"""

__all__ = ["removal", "typed_removal", "foreign", "returned_rows", "certificate"]  # noqa: RUF022 reading order

"""Rows taken out of the table, each deletion once: those asked for, and those older than their retention.

Start with ``removal``; ``typed_removal`` does it for typed tables, ``foreign`` notes what other programs deleted. The
format of requests and records is ``landing.requests``. Imports ``landing``, ``proof`` and ``upkeep.compaction``.
"""

__all__ = ["removal", "typed_removal", "foreign"]  # noqa: RUF022 reading order

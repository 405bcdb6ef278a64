"""Fill typed tables with rows that landed before, and compare them with their configuration.

Start with ``fill`` and ``refill``; ``found_fields`` and ``proposal`` propose a configuration, ``differences`` compares
one. Imports ``landing``, ``config`` and ``upkeep.compaction``.
"""

__all__ = ["fill", "refill", "found_fields", "proposal", "differences"]  # noqa: RUF022 reading order

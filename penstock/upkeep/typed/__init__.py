"""Fill typed tables with rows that landed before, and compare them with their configuration.

Start with ``fill`` and ``refill``; ``found_fields`` and ``proposal`` propose a configuration, ``differences`` compares
one, ``changed_rows`` finds the rows that a refill would change. Imports ``landing``, ``config`` and
``upkeep.compaction``.
"""

__all__ = ["fill", "refill", "found_fields", "proposal", "differences", "changed_rows"]  # noqa: RUF022 reading order

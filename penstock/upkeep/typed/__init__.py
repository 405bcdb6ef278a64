"""Typed tables filled with what landed before, and compared with their configuration.

Start with ``fill``; ``found_fields`` and ``proposal`` say what a configuration could be, ``differences`` what it is.
Imports ``landing``, ``config`` and ``upkeep.compaction``.
"""

__all__ = ["fill", "found_fields", "proposal", "differences"]  # noqa: RUF022 reading order

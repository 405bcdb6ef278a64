"""Appends to one or several topics that are stored as a whole or not at all.

Read ``transactions``, ``staging`` (what waits aside), ``decision`` (the commit). Imports ``files`` and ``log``.
"""

__all__ = ["transactions", "staging", "decision"]  # noqa: RUF022 reading order

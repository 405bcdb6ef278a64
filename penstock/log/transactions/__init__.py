"""Appends to one or several topics that are stored as a whole or not at all.

Read ``transactions``, ``staging`` (what waits aside), ``atomic_commit``. Imports ``files`` and ``log``.
"""

__all__ = ["transactions", "staging", "atomic_commit"]  # noqa: RUF022 reading order

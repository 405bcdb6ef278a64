"""Transactions: appends to one or several topics that are stored as a whole or not at all.

Read ``transactions``, ``staging`` (appends before their commit), ``atomic_commit``. Imports ``files`` and ``log``.
"""

__all__ = ["transactions", "staging", "atomic_commit"]  # noqa: RUF022 reading order

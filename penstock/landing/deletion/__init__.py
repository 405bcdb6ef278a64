"""Rows that are taken out of the table: those asked for, and those older than their retention.

Read ``conditions`` (which rows), ``deletions`` (what is to be done, and what was), ``removal`` (doing it, once) with
``typed_removal``, ``foreign`` (rows that other programs deleted), ``maintenance`` (when). Imports ``landing``,
``landing.proof``, ``landing.duplicates``, ``landing.table``, ``landing.typed``, ``landing.writing``, ``ledger`` and
``process``.
"""

__all__ = ["conditions", "deletions", "removal", "typed_removal", "foreign", "maintenance"]  # noqa: RUF022 reading order

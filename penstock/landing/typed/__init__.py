"""Typed tables: the events of one type with real columns, beside the one table and never counted with it.

Read ``columns`` (what fits, and how it is taken out of ``data``), ``typed_starts`` (from where on they are written),
``typed_delta`` (such a table as a list of files), ``typed_files`` (rows that landed into its files), ``typed_tables``
(each batch once into all of them, and since when). Imports ``landing``, ``landing.rows``, ``landing.table``,
``landing.storage``, ``landing.writing``, ``files`` and ``config``.
"""

__all__ = ["columns", "typed_starts", "typed_delta", "typed_files", "typed_tables"]  # noqa: RUF022 reading order

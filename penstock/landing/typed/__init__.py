"""Typed tables: the events of one type with their fields as columns. Their rows are not counted in the balance.

Read ``columns`` (the configured tables), ``column_types`` (what a column holds), ``contracts`` (rules on its values),
``evaluation``, ``shapes`` and ``conversion`` (how fields of ``data`` become columns), ``typed_delta`` (a typed table as
a list of files), ``typed_files`` (landed rows into its files), ``typed_tables`` (each batch once into all of them).
Imports ``landing``, ``landing.rows``, ``landing.table``, ``landing.storage``, ``landing.writing``, ``files`` and
``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "columns",
    "column_types",
    "contracts",
    "evaluation",
    "shapes",
    "conversion",
    "typed_delta",
    "typed_files",
    "typed_tables",
]

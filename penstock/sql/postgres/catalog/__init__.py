"""The database as clients ask for it: PostgreSQL's system catalog and information schema.

Start with ``system_tables`` (their rows), then ``system_columns`` (all of their columns) and ``system_catalog`` (both
in DuckDB). Imports ``sql`` and ``landing``.
"""

__all__ = [  # noqa: RUF022 reading order
    "system_tables",
    "system_columns",
    "system_catalog",
]

"""Exports: copies of views and typed tables in databases and other Delta tables, each row once.

Read ``exporter`` (the thread of an export) and ``target`` (what all targets have in common), then ``check`` (the same
sums on both sides) with ``row_differences``, and the targets: ``postgresql``, ``duckdb_file``, ``clickhouse`` and
``delta_copy``. Imports ``config``, ``files``, ``landing``, ``process``, ``proof`` and ``upkeep.changes``.
"""

__all__ = [  # noqa: RUF022 reading order
    "exporter",
    "target",
    "check",
    "row_differences",
    "postgresql",
    "duckdb_file",
    "clickhouse",
    "delta_copy",
]

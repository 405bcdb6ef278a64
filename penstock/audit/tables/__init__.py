"""Tables that an audit reads, one class per kind.

Read ``table`` (the methods of each, and the kind of an address), ``parquet_folder``, ``history`` (tables with
versions), ``delta``, ``landed``, ``iceberg``, ``snapshot_graph``, ``sql_table`` and ``sql_databases``. A new kind of
table is one class with the methods of ``table.AuditedTable``, and one line in ``table.open_table``; another package
names a function that opens one in its entry points (``table.PLUGINS``). Imports ``audit``, ``kafka.large``,
``landing``, ``landing.storage``, ``landing.table`` and ``proof``.
"""

__all__ = [
    "delta",
    "history",
    "iceberg",
    "landed",
    "parquet_folder",
    "snapshot_graph",
    "sql_databases",
    "sql_table",
    "table",
]

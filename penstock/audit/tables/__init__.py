"""Tables that an audit reads, one class per kind.

Read ``table`` (the methods of each, and the kind of an address) with ``address``, ``parquet_folder``, ``history``
(tables with versions), ``delta``, ``landed``, ``iceberg`` with ``iceberg_location``, ``iceberg_scan``,
``equality_deletes`` and ``snapshot_graph``, ``sql_table`` and ``sql_databases``. A new kind of table is one class with
the methods of ``table.AuditedTable``, and one line in ``table.open_table``; another package names a function that opens
one in its entry points (``table.PLUGINS``). Imports ``audit``, ``kafka.large``, ``landing``, ``landing.storage``,
``landing.table`` and ``proof``.
"""

__all__ = [
    "address",
    "delta",
    "equality_deletes",
    "history",
    "iceberg",
    "iceberg_location",
    "iceberg_scan",
    "landed",
    "parquet_folder",
    "snapshot_graph",
    "sql_databases",
    "sql_table",
    "table",
]

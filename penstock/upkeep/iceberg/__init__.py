"""Iceberg tables over the Parquet files of the Delta tables, in a catalog of the user's choice; no row is copied.

Read ``mirror`` (the thread), ``mirrored_table`` (one table: compare files, commit a snapshot),
``synced_io`` (files of metadata on a local disk). Imports ``config``, ``landing``, ``process`` and
``upkeep.compaction``.
"""

__all__ = [
    "mirror",
    "mirrored_table",
    "synced_io",
]

"""Files of tables, in a folder of this machine or in an object store.

Read ``object_errors``, ``object_path``, ``parquet_files``, ``bloom_filters``. Imports ``errors`` and ``files``.
"""

__all__ = ["bloom_filters", "object_errors", "object_path", "parquet_files"]

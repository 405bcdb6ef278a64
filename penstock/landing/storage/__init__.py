"""Files of tables, in a folder of this machine or in an object store.

Read ``object_errors``, ``object_path``, ``parquet_files``. Imports ``errors`` and ``files``.
"""

__all__ = ["object_errors", "object_path", "parquet_files"]

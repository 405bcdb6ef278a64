"""Where a table's files are: in a folder of this machine, or in an object store.

Read ``object_errors``, ``object_path``, ``parquet_files``, ``arrow_file_system`` (for datasets), ``absence``.
Imports ``errors`` and ``files``.
"""

__all__ = ["object_errors", "object_path", "parquet_files", "arrow_file_system", "absence"]  # noqa: RUF022 reading order

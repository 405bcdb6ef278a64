"""Values of keys with a syntax of their own: paths of fields in JSON, columns in Spark's DDL, and URLs of tables.

Read ``json_path``, ``spark_ddl`` and ``tables_url``. Imports ``errors``.
"""

__all__ = ["json_path", "spark_ddl", "tables_url"]

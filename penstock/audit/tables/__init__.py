"""Tables that an audit reads, one class per kind: ``table`` (what each offers, and which kind an address is),
``parquet_folder``, ``delta`` and ``sql_databases``.

A new kind of table is one class with the methods of ``table.AuditedTable``, and one line in ``table.open_table``.
"""

__all__ = ["delta", "parquet_folder", "sql_databases", "table"]

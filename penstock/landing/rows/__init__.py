"""Messages as rows of the table, whole Arrow columns at a time.

Read ``table_rows`` (what kind a message is, and its columns), ``json_events`` with ``strict_json``, ``data_text`` and
``type_schemas``, ``key_hashes``, ``engine``. Imports ``landing`` and ``wire``. Needs duckdb.
"""

__all__ = ["table_rows", "json_events", "strict_json", "data_text", "type_schemas", "key_hashes", "engine"]  # noqa: RUF022 reading order

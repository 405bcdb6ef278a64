"""Messages as rows of the table, whole Arrow columns at a time.

Read ``table_rows`` (what kind a message is, and its columns), ``json_events`` with ``strict_json``, ``json_places``,
``data_text`` and ``type_schemas``, ``key_hashes``, ``unique_annotations``, ``engine``. Imports ``landing`` and
``wire``. Needs duckdb.
"""

__all__ = [  # noqa: RUF022 reading order
    "table_rows",
    "json_events",
    "strict_json",
    "json_places",
    "data_text",
    "type_schemas",
    "key_hashes",
    "unique_annotations",
    "engine",
]

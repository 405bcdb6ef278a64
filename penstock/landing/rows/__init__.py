"""Convert messages to rows of the table, whole Arrow columns at a time.

Read ``table_rows`` (the kind of a message, and its columns), ``json_events`` with ``strict_json``, ``data_text`` and
``type_schemas``, ``long_numbers``, ``payload_fault`` (for people), ``unique_annotations``, ``engine``. Imports
``landing`` and ``wire``. Needs duckdb.
"""

__all__ = [  # noqa: RUF022 reading order
    "table_rows",
    "json_events",
    "strict_json",
    "data_text",
    "type_schemas",
    "long_numbers",
    "payload_fault",
    "unique_annotations",
    "engine",
]

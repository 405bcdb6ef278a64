"""Tables and log for clients of PostgreSQL: its protocol, version 3, in front of the queries of ``sql``.

Start with ``messages`` (the wire format) and ``types`` (types and rows on the wire); ``statements`` reads a client's
text and writes DuckDB's, ``system_catalog`` has what clients ask about a database, ``preparation`` finds the types of a
statement without reading data. ``session`` is one connection, with its ``settings`` and rights (``access``);
``server`` accepts connections. Imports ``sql``, ``landing``, ``process`` and
``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "messages",
    "types",
    "statements",
    "system_catalog",
    "preparation",
    "access",
    "settings",
    "session",
    "server",
]

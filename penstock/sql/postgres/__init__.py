"""Tables and log for clients of PostgreSQL: its protocol, version 3, in front of the queries of ``sql``.

Start with ``messages`` (the wire format), ``types``, ``rows`` and ``parameters`` (answers and parameters on the wire).
``statements`` reads a client's text and writes DuckDB's; ``system_tables`` and ``system_catalog`` describe the database
as clients ask for it; ``preparation`` finds the types of a statement without reading data. ``session`` is one
connection, with its ``prepared_statements``, ``settings`` and rights (``access``); ``server`` accepts connections.
Imports ``sql``, ``landing``, ``process`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "messages",
    "types",
    "rows",
    "parameters",
    "statements",
    "system_columns",
    "system_tables",
    "system_catalog",
    "preparation",
    "access",
    "settings",
    "prepared_statements",
    "session",
    "server",
]

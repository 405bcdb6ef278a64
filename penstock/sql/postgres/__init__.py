"""Tables and log for clients of PostgreSQL: its protocol, version 3, in front of the queries of ``sql``.

Start with ``messages`` (the wire format), ``types``, ``rows`` and ``parameters`` (answers and parameters on the wire).
``statements`` reads a client's text and writes DuckDB's; ``catalog`` describes the database as clients ask for it.
``session`` is one connection, with its rights (``access``); ``server`` accepts connections. Imports ``sql``,
``landing``, ``proof``, ``process`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "messages",
    "types",
    "rows",
    "parameters",
    "statements",
    "catalog",
    "access",
    "session",
    "server",
]

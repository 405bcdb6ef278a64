"""A connection of a client, by the flows of messages in PostgreSQL's protocol: start-up, simple and extended queries.

Start with ``session`` (the loop over messages) and ``output``. ``startup`` checks the password; ``extended_query``
prepares statements (``prepared_statements``) and binds them to ``portals``; ``execution`` sends their rows, also of
``cursors`` and for ``copying``; ``commands`` answers statements without rows, with ``transactions`` and ``settings``.
``client_catalog`` has the columns of statements, which ``preparation`` finds without reading data; ``time_zones`` has
the zones of sessions. Imports ``sql``.
"""

__all__ = [  # noqa: RUF022 reading order
    "output",
    "startup",
    "settings",
    "time_zones",
    "preparation",
    "prepared_statements",
    "portals",
    "cursors",
    "copying",
    "client_catalog",
    "transactions",
    "commands",
    "execution",
    "extended_query",
    "session",
]

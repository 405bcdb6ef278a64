"""Tables and log for clients of Arrow Flight SQL, such as ADBC: the queries of ``sql`` as Arrow batches.

Start with ``commands`` (messages and handles), then ``service`` (what each command answers) and ``server`` (gRPC). It
runs in the process of ``sql.postgres``, with the same limits, and prepares statements as that does. Imports ``sql``,
``server``, ``slogd``, ``process`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "commands",
    "service",
    "server",
]

"""The web console: what became of every message, at a glance.

Read ``main`` (its process), ``login``, ``daemon_poll`` with ``history`` and ``lags``, ``readable``, ``pages/``, then
what pages are made of: ``theme``, ``asked``, ``topic_reading``, ``message_view``, ``pipe_picture``, ``charts``,
``receipt_details``, ``findings``, ``cures``, ``wording``.
Imports ``config``, ``client``,
``landing``, ``upkeep``, ``sql``, ``ledger`` and ``process``; what the pages show of the daemon comes over HTTP.
"""

__all__ = [  # noqa: RUF022 reading order
    "main",
    "login",
    "daemon_poll",
    "history",
    "lags",
    "readable",
    "pages",
    "theme",
    "asked",
    "topic_reading",
    "message_view",
    "pipe_picture",
    "charts",
    "receipt_details",
    "findings",
    "cures",
    "wording",
]

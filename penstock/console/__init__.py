"""The web console: what became of every message, at a glance.

Read ``main`` (its process), ``login``, ``daemon_poll`` with ``history``, ``readable``, ``pages/``, then what pages are
made of: ``theme``, ``pipe_picture``, ``charts``, ``receipt_details``, ``findings``, ``cures``, ``wording``.
Imports ``config``, ``client``,
``landing``, ``sql``, ``ledger`` and ``process``; what the pages show of the daemon comes over HTTP.
"""

__all__ = [  # noqa: RUF022 reading order
    "main",
    "login",
    "daemon_poll",
    "history",
    "readable",
    "pages",
    "theme",
    "pipe_picture",
    "charts",
    "receipt_details",
    "findings",
    "cures",
    "wording",
]

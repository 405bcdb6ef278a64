"""The web console: what became of every message, at a glance.

Read ``main`` (its process), ``people``, ``users``, ``login``, ``daemon_poll`` with ``history``, ``findings`` with
``kernel_drops``, ``topic_reading``, ``wording``, then ``pages/`` and ``components/``.
Imports ``config``, ``client``, ``handover``, ``supervise``, ``landing``, ``upkeep``, ``sql``, ``audit``, ``ledger``
and ``process``; pages get the state of the daemon over HTTP.
"""

__all__ = [  # noqa: RUF022 reading order
    "main",
    "people",
    "users",
    "login",
    "daemon_poll",
    "history",
    "topic_reading",
    "findings",
    "kernel_drops",
    "wording",
    "pages",
    "components",
]

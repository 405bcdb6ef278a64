"""The web console: what became of every message, at a glance.

Read ``main`` (its process), ``people``, ``users``, ``login``, ``daemon_poll`` with ``history``, ``pages/``, then what
pages are made of: ``theme``, ``search_input``, ``topic_reading``, ``message_view``, ``message_fields``,
``result_grid``, ``pipe_picture``, ``charts``, ``receipt_details``, ``findings`` with ``kernel_drops``,
``empty_states``, ``wording``.
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
    "pages",
    "theme",
    "search_input",
    "topic_reading",
    "message_view",
    "message_fields",
    "result_grid",
    "pipe_picture",
    "charts",
    "receipt_details",
    "findings",
    "empty_states",
    "kernel_drops",
    "wording",
]

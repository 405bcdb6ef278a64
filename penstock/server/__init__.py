"""The log daemon: topics served by gRPC, HTTP and Flight, the ledger beside them.

Read ``daemon`` (the process), ``servers``, ``entries_api`` (append, get, stream) with ``read_query``, ``entry_pages``,
``pages_ahead`` and ``answered_pages`` (pages that are there before they are asked for), ``search_pages``, what streams
share and wait for (``shared_pages``, ``newest``, ``wake``) and ``thread_results``,
``admin_api``, ``permitted_topics``, ``monitoring_api``, ``live_settings``, then the doors ``grpc``, ``http``,
``flight``, and ``auth``, ``metrics`` and ``alarms``. Imports any room before it: ``log``, ``handover``, ``supervise``,
``slogd``, ``ledger``.
"""

__all__ = [
    "admin_api",
    "alarms",
    "answered_pages",
    "auth",
    "daemon",
    "entries_api",
    "entry_pages",
    "flight",
    "grpc",
    "http",
    "live_settings",
    "metrics",
    "monitoring_api",
    "newest",
    "pages_ahead",
    "permitted_topics",
    "read_query",
    "search_pages",
    "servers",
    "shared_pages",
    "thread_results",
    "wake",
]

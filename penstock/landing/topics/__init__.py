"""Where topics are read: their folder, or the log daemon over Arrow Flight; both give the same rows.

Read ``topic_store`` (what both are), ``from_folder``, ``from_flight``. Imports ``landing.daemon_connection``, ``log``
and ``client``.
"""

__all__ = ["topic_store", "from_folder", "from_flight"]  # noqa: RUF022 reading order

"""Read topics from their folder, or from the log daemon over Arrow Flight; both return the same rows.

Read ``topic_store`` (the interface), ``from_folder``, ``from_flight``. Imports ``landing.daemon_connection``, ``log``
and ``client``.
"""

__all__ = ["topic_store", "from_folder", "from_flight"]  # noqa: RUF022 reading order

"""Read topics from their folder, or from the log daemon over Arrow Flight; both return the same rows.

Read ``topic_store`` (the interface), ``from_folder``, ``from_flight``, and ``continuity``: whether offsets still name
the messages that landed. Imports ``landing.daemon_connection``, ``landing.journal``, ``log`` and ``client``.
"""

__all__ = ["topic_store", "from_folder", "from_flight", "continuity"]  # noqa: RUF022 reading order

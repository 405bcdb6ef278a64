"""Readers of topic folders: they use the files alone, also while another process writes them.

Read ``segment_view``, ``topic_reader``, then ``filters`` and ``filter_syntax``. Imports ``files``, ``log.store`` and
``log.errors``.
"""

__all__ = ["segment_view", "topic_reader", "filters", "filter_syntax"]  # noqa: RUF022 reading order

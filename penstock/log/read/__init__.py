"""Readers of topic folders: they use the files alone, also while another process writes them.

Read ``segment_view``, ``topic_reader``, then ``filters``, ``filter_syntax`` and ``pattern_cost`` (a limit for filters),
and ``glance`` (whether a topic needs recovery). Imports ``files``, ``log.store`` and ``log.errors``.
"""

__all__ = [  # noqa: RUF022 reading order
    "segment_view",
    "topic_reader",
    "filters",
    "filter_syntax",
    "pattern_cost",
    "glance",
]

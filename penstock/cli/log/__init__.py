"""Commands on topics and their entries: produce, consume, topics, topic, cleanup, log.

Read ``connect`` (which daemon, with which token), ``entries``, ``topics``, ``topic_files``. Imports ``client`` and
``slogd``; ``topic_files`` also ``log`` and, while no daemon runs, ``server``.
"""

__all__ = ["connect", "entries", "topics", "topic_files"]  # noqa: RUF022 reading order

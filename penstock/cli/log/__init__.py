"""Commands on topics and their entries: produce, consume, tail, topics, topic, cleanup, log.

Read ``connect`` (which daemon, with which token), ``entries``, ``tail``, ``topic_list`` with ``figures``, ``topics``,
``topic_files``. Imports any room before
it, inside functions where that is slow or needs an extra. Beside them ``cli``.
"""

__all__ = ["connect", "entries", "tail", "topic_list", "figures", "topics", "topic_files"]  # noqa: RUF022 reading order

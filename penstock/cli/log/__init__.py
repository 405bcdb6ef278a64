"""Commands on topics and their entries: produce, consume, tail, topics, topic, cleanup, log.

Read ``connect`` (the daemon and its token), ``entries``, ``tail``, ``topic_list``, ``topics``, ``topic_files``. Imports
any room before it, inside functions if that is slow or needs an extra. Also ``cli``.
"""

__all__ = ["connect", "entries", "tail", "topic_list", "topics", "topic_files"]  # noqa: RUF022 reading order

"""A topic of the log goes on in Kafka, and the pipeline with it.

Read ``promotion``, ``offset_map``, ``moved_topics``, ``kafka_writer``. Imports ``landing``, ``log`` and ``kafka``.
"""

__all__ = ["promotion", "offset_map", "moved_topics", "kafka_writer"]  # noqa: RUF022 reading order

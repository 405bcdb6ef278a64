"""Kafka's records as rows of the landing, with large messages put together.

Read ``rows``, ``range_assembler``, then ``read_back``, which alone needs Kafka's client; ``offset_map`` (where the rows
of a topic of the log are in Kafka). Imports ``kafka.errors``, ``kafka.large`` and ``landing``.
"""

__all__ = ["rows", "range_assembler", "read_back", "offset_map"]  # noqa: RUF022 reading order

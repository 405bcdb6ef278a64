"""Kafka's records as rows of the landing, with large messages put together.

Read ``rows``, ``range_assembler``, then ``read_back``, which alone needs Kafka's client. Imports ``kafka.errors``,
``kafka.large`` and ``landing.event_rules``.
"""

__all__ = ["rows", "range_assembler", "read_back"]  # noqa: RUF022 reading order

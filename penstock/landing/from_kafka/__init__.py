"""Convert Kafka records to rows of the landing, and assemble large messages from their chunks.

Read ``rows``, ``range_assembler``, then ``read_back``, ``partitions`` and ``continuity`` (whether a topic was made
again), which need Kafka's client; ``offset_map`` maps rows of a promoted topic to their Kafka offsets. Imports
``kafka.errors``, ``kafka.large``, ``kafka.client.administration``, ``kafka.client.broker_answers``,
``kafka.origin_header``, ``log`` and ``landing``.
"""

__all__ = ["rows", "range_assembler", "read_back", "partitions", "continuity", "offset_map"]  # noqa: RUF022 reading order

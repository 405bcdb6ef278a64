"""A topic of the log continues in Kafka, and the pipeline with it.

Start with ``promotion``; ``kafka_writer`` sends the rows. Imports ``landing``, ``log``, ``kafka`` and
``server.kafka.records``.
"""

__all__ = ["promotion", "kafka_writer"]  # noqa: RUF022 reading order

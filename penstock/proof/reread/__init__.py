"""Messages at offsets that are not in the table, read a second time: from the log, over Flight, or from Kafka.

Read ``messages``, then ``flight`` and ``kafka``. Imports ``landing``, ``client``, ``log``, ``kafka.absent_offsets``,
``kafka.client.broker_answers``, ``kafka.errors``, ``kafka.large`` and ``kafka.origin_header``.
"""

__all__ = ["messages", "flight", "kafka"]  # noqa: RUF022 reading order

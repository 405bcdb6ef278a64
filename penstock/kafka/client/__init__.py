"""``Producer`` and ``Consumer`` with the interface of confluent-kafka, for messages of any size.

Read ``config`` with ``properties``, ``broker_answers``, ``producer`` (with ``message_batch``, ``delivery_reports`` and
``claim_check_advice``), ``consumer`` with ``consumer_state``, ``seekable_consumer`` and ``start_offsets``; then
``administration`` (requests about a cluster) and ``plugins``. Imports ``kafka.errors``, ``kafka.large`` and
``kafka.auditing``, and needs confluent-kafka.
"""

__all__ = [  # noqa: RUF022 reading order
    "config",
    "properties",
    "broker_answers",
    "producer",
    "message_batch",
    "delivery_reports",
    "claim_check_advice",
    "consumer",
    "consumer_state",
    "seekable_consumer",
    "start_offsets",
    "administration",
    "plugins",
]

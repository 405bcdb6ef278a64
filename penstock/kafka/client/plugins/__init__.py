"""Parts of a client that its configuration names: serializers, auditors, partitioners, and encryption.

Read ``loading`` with ``instances``, then ``java_partitioner``, ``flink_partitioner`` and ``encryption``.
Imports ``kafka.auditing``, ``kafka.large``, ``kafka.client.config`` and ``kafka.client.consumer_state``.
"""

__all__ = [  # noqa: RUF022 reading order
    "loading",
    "instances",
    "java_partitioner",
    "flink_partitioner",
    "encryption",
]

"""Records that a table must have: from topics of Kafka, from the log, or from another table.

Start with ``open_source``, then ``kafka_source`` with ``dead_letters`` (records that a framework could not handle),
``log_source`` and ``table_source``. Imports ``audit``, ``landing``, ``proof``, ``log``, ``kafka`` and ``client``.
"""

__all__ = ["open_source", "kafka_source", "dead_letters", "log_source", "table_source"]  # noqa: RUF022 reading order

"""Completeness audits of foreign pipelines: whether every record of a Kafka topic is in a table, once.

Read ``audit`` (the whole check), then ``offset_ranges`` (which offsets a table has), ``kafka_source`` (which offsets
it must have), ``columns`` (where a table keeps them), ``tables`` (one class per kind of table), ``report`` and
``html_report`` (for people), ``receipt`` (repeats a check), ``redelivery`` and ``watch`` (metrics of a check that is
repeated). Nothing is written on either side, unless a redelivery is asked for: no consumer group, no commit, no table
property. Imports ``kafka``, ``landing.offset_runs`` and ``server.metrics``.
"""

__all__ = [  # noqa: RUF022 reading order
    "audit",
    "offset_ranges",
    "kafka_source",
    "columns",
    "tables",
    "report",
    "html_report",
    "receipt",
    "redelivery",
    "watch",
]

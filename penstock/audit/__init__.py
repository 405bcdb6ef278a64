"""Completeness audits of foreign pipelines: whether every record of a Kafka topic is in a table, once.

Read ``audit`` (the whole check), then ``offset_ranges`` (which offsets a table has), ``kafka_source`` (which offsets
it must have), ``columns`` (where a table keeps them), ``tables`` (one class per kind of table) and ``report``.
Nothing is written on either side: no consumer group, no commit, no table property. Imports ``kafka`` and
``landing.offset_runs``.
"""

__all__ = [  # noqa: RUF022 reading order
    "audit",
    "offset_ranges",
    "kafka_source",
    "columns",
    "tables",
    "report",
]

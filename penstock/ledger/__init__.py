"""The ledger: the counts that every stage reports, and the balance computed from them (docs/accounting.md).

Start with ``posts`` (reports of other stages), ``book`` (counts in memory, in the columns of ``bucket_tables``) and
``balance``, which reads the book's ``source_totals``. ``book_from_topics`` reads the book from the log; ``ledger``
keeps it up to date.
``in_buffer`` and ``handler_deliveries`` add what waits in log buffers;
``watermarks``, ``time_series``, ``daily_rollup``, ``audit_counts`` and ``senders`` are other views. ``hosts``
has what other hosts count that relay to this one, and post (``host_posts``), ``kafka_hosts`` and ``over_kafka`` the
same of hosts that forward to Kafka; ``host_files`` stores both.
``checkpoint`` with ``checkpoint_keeper`` shortens a start, and ``rebuild`` computes the balance without the ledger.
``receipt`` with ``receipt_words`` and ``event_recorder`` (the timeline) with ``event_words`` are what people see.
Imports ``log``, ``handover``, ``logbuffer``, ``counts``, ``records`` and ``files``; never ``landing`` or ``spark``,
which report to it.
"""

__all__ = [  # noqa: RUF022 reading order
    "posts",
    "bucket_tables",
    "source_totals",
    "book",
    "balance",
    "book_from_topics",
    "ledger",
    "in_buffer",
    "handler_deliveries",
    "watermarks",
    "time_series",
    "daily_rollup",
    "audit_counts",
    "senders",
    "host_posts",
    "host_files",
    "hosts",
    "kafka_hosts",
    "over_kafka",
    "checkpoint",
    "checkpoint_keeper",
    "rebuild",
    "receipt",
    "receipt_words",
    "event_recorder",
    "event_words",
]

"""Large messages split over Kafka records, in the format of li-apache-kafka-clients, without I/O.

Read ``chunks`` and ``headers`` (the formats), ``splitter``, ``incomplete_messages`` (the buffer that puts them
together, for consumers and for the landing) with ``assembler``, ``record_processor``, ``safe_offsets``. Imports
``kafka.errors`` and ``kafka.auditing.auditor``, the interface of auditors.
"""

__all__ = [  # noqa: RUF022 reading order
    "chunks",
    "headers",
    "splitter",
    "incomplete_messages",
    "assembler",
    "record_processor",
    "safe_offsets",
]

"""Split large messages over Kafka records and assemble them again, in the format of li-apache-kafka-clients,
without I/O.

Read ``chunks`` and ``headers`` (the formats), ``splitter``, ``incomplete_messages`` (the bounded buffer, used by
consumers and by the landing) with ``assembler``, ``record_processor``, ``safe_offsets``. Imports ``kafka.errors`` and
``kafka.auditing.auditor``, the interface of auditors.
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

"""The proof of a committed micro-batch: every offset is a row, a duplicate, or in a gap.

Read ``prover`` (which decides what is a duplicate and what is lost), ``evidence``, ``reread`` with ``reread_flight``,
``kafka_records`` and ``reread_kafka``, ``uuid_sums``, ``ledger_posts``, ``table_posts``.
Imports ``landing`` beside this folder, ``log``, ``client`` and ``ledger``.
"""

__all__ = [  # noqa: RUF022 reading order
    "prover",
    "evidence",
    "reread",
    "reread_flight",
    "kafka_records",
    "reread_kafka",
    "uuid_sums",
    "ledger_posts",
    "table_posts",
]

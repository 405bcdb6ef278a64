"""The proof of a committed micro-batch: every offset is a row, a duplicate, or in a gap.

Read ``proofs``, ``prover`` (which judges each offset that is no row: a duplicate, a gap, or lost), ``evidence``,
``rows_of_batches``, ``reread`` with ``reread_flight``, ``kafka_records`` and ``reread_kafka``, ``uuid_sums``,
``rollup`` (of what is long done), ``ledger_posts``, ``table_posts``. Imports ``landing``, ``log``, ``kafka.large``,
``kafka.client``, ``client``, ``ledger`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "proofs",
    "prover",
    "evidence",
    "rows_of_batches",
    "reread",
    "reread_flight",
    "kafka_records",
    "reread_kafka",
    "uuid_sums",
    "rollup",
    "ledger_posts",
    "table_posts",
]

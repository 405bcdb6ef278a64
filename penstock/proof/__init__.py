"""Evidence that a committed batch landed completely: each offset is a row, a duplicate, or in a gap.

Start with ``proofs`` and ``prover``, which judges each offset without a row. Then ``evidence`` and
``rows_of_batches``; ``reread`` and ``kafka_records`` read the log again; ``uuid_sums``; ``rollup`` of old proofs;
``deleted_rows``; commits of other programs (``foreign_deletions``, ``commit_faults``, ``commit_notes``);
``proofs_table`` (for SQL); ``posts`` to the ledger; ``group_offsets`` (for lag tools of Kafka), ``status`` and
``watermarks``. Imports ``handover.landing_failure``, ``landing``, ``log``, ``kafka.large``, ``kafka.client``,
``kafka.absent_offsets``, ``kafka.errors``, ``kafka.origin_header``, ``client``, ``ledger``, ``process.kernel`` and
``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "proofs",
    "prover",
    "evidence",
    "rows_of_batches",
    "reread",
    "kafka_records",
    "uuid_sums",
    "rollup",
    "deleted_rows",
    "foreign_deletions",
    "commit_faults",
    "commit_notes",
    "proofs_table",
    "posts",
    "group_offsets",
    "status",
    "watermarks",
]

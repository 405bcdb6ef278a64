"""Posts to the ledger: of proofs, of topics that moved to Kafka, of the ends of partitions, and of whole tables.

Read ``ledger_client``, then ``moved_topics``, ``ends`` and ``tables``. Imports ``landing``, ``log``, ``ledger``,
``config``, ``kafka.errors``, ``proof.proofs``, ``proof.prover``, ``proof.foreign_deletions``, ``proof.kafka_records``
and ``proof.reread``.
"""

__all__ = ["ledger_client", "moved_topics", "ends", "tables"]  # noqa: RUF022 reading order

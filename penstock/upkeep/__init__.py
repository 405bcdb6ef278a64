"""Work on an existing table: deletion, compaction, backfill, quarantine, tracing and promotion to Kafka.

Start with ``maintenance``, the thread that schedules the work. ``believed_clock`` decides whether rows and files may
be removed by age, ``backfill_planner`` requests offsets out of turn, ``backup`` copies a whole instance and restores
it, ``changes`` reads a table incrementally, ``explain`` says what a payload would become, ``catalog_entries`` enters
the tables in a catalog, Unity Catalog by ``unity_catalog``.
The folders: ``repair`` of damaged files, ``deletion``, ``compaction``, ``iceberg`` tables, ``export`` to databases,
``typed`` tables, ``promote``, ``quarantine`` and ``trace``. Imports ``config``, ``landing``, ``proof``, ``log``,
``ledger``, ``process``, ``kafka``, ``wire``, ``ingest`` and ``handover``.
"""

__all__ = [  # noqa: RUF022 reading order
    "maintenance",
    "believed_clock",
    "backfill_planner",
    "backup",
    "changes",
    "explain",
    "catalog_entries",
    "unity_catalog",
    "repair",
    "deletion",
    "compaction",
    "iceberg",
    "export",
    "typed",
    "promote",
    "quarantine",
    "trace",
]

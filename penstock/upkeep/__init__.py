"""Work on an existing table: deletion, compaction, backfill, quarantine, tracing and promotion to Kafka.

Start with ``maintenance``, the thread that schedules the work. ``believed_clock`` decides whether rows and files may
be removed by age, ``checkpoint_repair`` repairs the pipeline's files before it starts, ``checkpoint_rebuild``
replaces lost ones, ``backfill_planner`` requests offsets out of turn, ``scrub`` checks all files, ``restore`` replaces
damaged ones with ``reread_rows``, ``lost_column``, ``former_origins`` and ``other_rows``, ``backup`` copies a whole
instance and restores it, ``changes`` reads a table incrementally, ``explain`` says what a payload would become,
``catalog_entries`` enters the tables in a catalog.
The folders: ``deletion``, ``compaction``, ``iceberg`` tables, ``export`` to databases, ``typed`` tables, ``promote``,
``quarantine`` and ``trace``. Imports ``config``, ``landing``, ``proof``, ``log``, ``ledger``, ``process``, ``kafka``,
``wire``, ``ingest`` and ``handover``.
"""

__all__ = [  # noqa: RUF022 reading order
    "maintenance",
    "believed_clock",
    "checkpoint_repair",
    "checkpoint_rebuild",
    "backfill_planner",
    "scrub",
    "restore",
    "reread_rows",
    "other_rows",
    "lost_column",
    "former_origins",
    "backup",
    "changes",
    "explain",
    "catalog_entries",
    "deletion",
    "compaction",
    "iceberg",
    "export",
    "typed",
    "promote",
    "quarantine",
    "trace",
]

"""Work on a table that exists: deletion, compaction, backfill, quarantine, tracing and promotion to Kafka.

Start with ``maintenance``, the thread that decides when. ``believed_clock`` decides whether age may count,
``checkpoint_repair`` mends the pipeline's files before it starts, ``backfill_planner`` asks for offsets out of turn.
The folders: ``deletion``, ``compaction``, ``typed`` tables, ``promote``, ``quarantine`` and ``trace``. Imports
``landing``, ``proof``, ``log``, ``ledger`` and ``process``.
"""

__all__ = [  # noqa: RUF022 reading order
    "maintenance",
    "believed_clock",
    "checkpoint_repair",
    "backfill_planner",
    "deletion",
    "compaction",
    "typed",
    "promote",
    "quarantine",
    "trace",
]

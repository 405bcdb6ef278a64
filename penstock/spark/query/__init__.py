"""The landing query: from topics to the one table, and the worker that proves each batch.

Read ``landing_query``, ``checked_reader``, ``landing_tasks``, ``part_results``, ``type_schemas``,
``proof_worker``. Imports ``handover.landing_failure``, ``spark``, ``landing``, ``proof``, ``kafka.errors``, ``ledger``,
``upkeep``, ``process`` and ``config``.
"""

__all__ = [  # noqa: RUF022 reading order
    "landing_query",
    "checked_reader",
    "landing_tasks",
    "part_results",
    "type_schemas",
    "proof_worker",
]

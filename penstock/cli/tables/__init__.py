"""Commands on the pipeline and its tables: pipeline, tables, export, schema, sql, trace, explain.

Read ``pipeline`` with its commands ``wait``, ``backfill``, ``replay`` and ``quarantine``, ``spark_session``, then
``contents`` with ``changes`` and ``delete``, ``export``, ``schema``, ``sql``, ``trace`` and ``explain``. Imports any
room before it, inside functions if that is slow or needs an extra. Also ``cli``.
"""

__all__ = [  # noqa: RUF022 reading order
    "pipeline",
    "wait",
    "backfill",
    "replay",
    "quarantine",
    "spark_session",
    "contents",
    "changes",
    "delete",
    "export",
    "schema",
    "sql",
    "trace",
    "explain",
]

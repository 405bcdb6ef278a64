"""Commands on the pipeline and its tables: pipeline, tables, trace.

Read ``pipeline`` with its commands ``wait``, ``backfill``, ``replay`` and ``quarantine``, ``spark_session``, then
``contents`` with ``delete`` and ``fill``, ``schema``, and ``trace``. Imports any room before it, inside functions where
that is slow or needs an extra. Beside them ``cli``.
"""

__all__ = [  # noqa: RUF022 reading order
    "pipeline",
    "wait",
    "backfill",
    "replay",
    "quarantine",
    "spark_session",
    "contents",
    "delete",
    "fill",
    "schema",
    "trace",
]

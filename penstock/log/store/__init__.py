"""A topic's files: what is in them, and how they are read back after anything.

Read ``batch_format``, ``row_format`` (the same of a few rows, without Arrow), ``segment``, ``index``, ``batch_copies``
(what batches said, a second time), ``scan`` (batches found in damaged bytes), ``recovery``, ``gaps``, ``producers``
(what makes a retry harmless), then ``provenance`` and ``visibility`` (how a transaction shows itself in all topics at
once). Imports ``files``, ``log.errors`` and ``log.documents``.
"""

__all__ = [  # noqa: RUF022 reading order
    "batch_format",
    "row_format",
    "segment",
    "index",
    "batch_copies",
    "scan",
    "recovery",
    "gaps",
    "provenance",
    "visibility",
]

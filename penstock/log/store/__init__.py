"""A topic's files: what is in them, and how they are read back after anything.

Read ``batch_format``, ``row_format`` (the same of a few rows, without Arrow), ``segment_files``, ``segment`` (the
writer), ``index``, ``batch_copies`` (a second copy of the counts), ``scan`` (batches found in damaged bytes),
``recovery``, ``gaps``, ``producers`` (what makes a retry harmless), then ``provenance`` and ``visibility`` (how a
transaction shows itself in all topics at once). Imports ``files``, ``log.errors`` and ``log.documents``.
"""

__all__ = [  # noqa: RUF022 reading order
    "batch_format",
    "row_format",
    "segment_files",
    "segment",
    "index",
    "batch_copies",
    "scan",
    "recovery",
    "gaps",
    "producers",
    "provenance",
    "visibility",
]

"""Rewrite files of a table: merge small files, and repair annotations with repeated names.

Start with ``compaction``; ``typed_compaction`` does the same for typed tables, and ``annotation_repair`` gives
landed rows unique names of annotations. Imports ``landing``.
"""

__all__ = ["compaction", "typed_compaction", "annotation_repair"]  # noqa: RUF022 reading order

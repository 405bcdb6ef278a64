"""Files of a table that are written again: small ones merged, and annotations that have one name twice.

Start with ``compaction``; ``typed_compaction`` does it for typed tables. Imports ``landing``.
"""

__all__ = ["compaction", "typed_compaction", "annotation_repair"]  # noqa: RUF022 reading order

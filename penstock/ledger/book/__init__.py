"""The book: counts of every topic in memory, by time, read from the log and from the book's checkpoint.

Start with ``daily_rollup`` (how old counts become days), ``bucket_tables`` (counts in columns), ``source_totals`` (what
each source sent in all) and ``senders``, then ``book_pages`` (all counts) and ``book`` itself. ``checkpoint`` stores a
book, and ``book_from_topics`` reads one: from its checkpoint and the newer batches of the log. Imports ``log``,
``handover`` and ``ledger.posts``.
"""

__all__ = [  # noqa: RUF022 reading order
    "daily_rollup",
    "bucket_tables",
    "source_totals",
    "senders",
    "book_pages",
    "book",
    "checkpoint",
    "book_from_topics",
]

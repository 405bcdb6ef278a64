"""The ledger: the counts that every stage reports, and the balance computed from them (docs/accounting.md).

Start with ``posts`` (reports of other stages), the folders ``book`` (counts in memory) and ``hosts`` (counts of other
hosts), and ``balance``, which reads both; ``balance_from_topics`` adds what the topics' files contain besides.
``ledger`` keeps the book up to date, ``checkpoint_keeper`` its checkpoint. ``in_buffer`` and ``handler_deliveries`` add
what waits in log buffers; ``watermarks``, ``time_series`` and ``audit_counts`` are other views; ``rebuild`` computes
the balance without the ledger. ``receipt`` with ``receipt_words`` and ``event_recorder`` (the timeline) with
``event_words`` are what people see.
Imports ``log``, ``handover``, ``logbuffer``, ``counts``, ``records`` and ``files``; never ``landing`` or ``spark``,
which report to it.
"""

__all__ = [  # noqa: RUF022 reading order
    "posts",
    "book",
    "hosts",
    "balance",
    "balance_from_topics",
    "in_buffer",
    "handler_deliveries",
    "watermarks",
    "time_series",
    "audit_counts",
    "ledger",
    "checkpoint_keeper",
    "rebuild",
    "receipt",
    "receipt_words",
    "event_recorder",
    "event_words",
]

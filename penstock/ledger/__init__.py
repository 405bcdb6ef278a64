"""The ledger: what every stage says of every message, and the balance that follows from it.

Read ``posts`` (what is told), ``book`` (what is kept), ``balance`` (what follows), ``book_from_topics``, ``ledger``;
then ``in_buffer``, ``handler_deliveries``, ``watermarks``, ``time_series``, ``daily_rollup``, ``audit_counts``,
``checkpoint`` with ``checkpoint_keeper``, and ``rebuild`` (the balance without the ledger). What people are shown:
``receipt`` with ``receipt_words``, ``event_recorder`` (the timeline) with ``event_words``. Imports ``log``,
``handover``, ``logbuffer``, ``counts``, ``records`` and ``files``; never ``landing`` or ``spark``, which tell it what
landed.
"""

__all__ = [  # noqa: RUF022 reading order
    "posts",
    "book",
    "balance",
    "book_from_topics",
    "ledger",
    "in_buffer",
    "handler_deliveries",
    "watermarks",
    "time_series",
    "daily_rollup",
    "audit_counts",
    "checkpoint",
    "checkpoint_keeper",
    "rebuild",
    "receipt",
    "receipt_words",
    "event_recorder",
    "event_words",
]

"""Requests for work on a table and the records of it, as files: backfills and deletions.

Read ``backfill_requests``, ``conditions`` (of deletions), ``deletions``. ``upkeep`` and the landing query do the work.
Imports ``config``, ``landing``, ``landing.storage``, ``landing.duplicates`` and ``landing.table``.
"""

__all__ = ["backfill_requests", "conditions", "deletions"]

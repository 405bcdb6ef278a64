"""Files that ask for work on a table, and the records of it: backfills and deletions.

Read ``backfill_requests``, ``conditions`` (of deletions), ``deletions``. The work itself is done in ``upkeep`` and by
the landing query. Imports ``landing``, ``landing.storage``, ``landing.duplicates`` and ``landing.table``.
"""

__all__ = ["backfill_requests", "conditions", "deletions"]

"""Which events are duplicates: the first of a key stays, within a window of the log's own time.

Read ``events_seen`` (keys with their places), ``decision``, ``hash_run`` (a file of keys that landed), ``landed_keys``
(all of them). Imports ``landing``.
"""

__all__ = ["events_seen", "decision", "hash_run", "landed_keys"]  # noqa: RUF022 reading order

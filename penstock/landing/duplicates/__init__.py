"""Which events are duplicates: the first of a key stays, within a window of the log's own time.

Read ``events_seen`` (keys with their places), ``decision``, ``key_filter``, ``hash_run`` (a file of keys that landed),
``merged_runs`` (several as one), ``landed_keys`` (all of them), ``stream_judge`` (batch after batch). Imports
``landing``.
"""

__all__ = ["events_seen", "decision", "key_filter", "hash_run", "merged_runs", "landed_keys", "stream_judge"]  # noqa: RUF022 reading order

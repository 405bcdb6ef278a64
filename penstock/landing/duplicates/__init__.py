"""Decide which events are duplicates: the first of a key stays, within a window of the log's own time.

Read ``events_seen`` (keys with their positions), ``decision``, ``key_filter``, ``hash_run`` (a file of landed keys,
and the merging of several), ``landed_keys`` (all of them). Imports ``landing``.
"""

__all__ = ["events_seen", "decision", "key_filter", "hash_run", "landed_keys"]  # noqa: RUF022 reading order

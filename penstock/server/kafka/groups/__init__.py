"""Consumer groups: membership and rebalances in memory, committed offsets as cursors of the log.

Read ``group_state`` (where a group is rebalanced), ``groups`` and ``group_offsets``. Imports ``log``, ``slogd``,
``server`` and ``server.kafka.schema``.
"""

__all__ = ["group_offsets", "group_state", "groups"]

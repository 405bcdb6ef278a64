"""Answer producers and consumers: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch and InitProducerId.

Read ``produce`` with ``unanswered_refusals``, then ``fetch`` with ``fetch_sessions`` and ``pages``. Imports ``log``,
``records``, ``server``, ``kafka.errors``, ``server.kafka.schema`` and ``server.kafka.records``.
"""

__all__ = ["fetch", "fetch_sessions", "pages", "produce", "unanswered_refusals"]

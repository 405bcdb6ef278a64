"""Batchers for single payloads, with a thread or on an event loop.

Read ``batch_queue`` (the waiting entries), ``batcher``, ``async_batcher``. Imports ``client.log`` and ``slogd``.
"""

__all__ = ["async_batcher", "batch_queue", "batcher"]

"""Appending single payloads in batches, by a thread or on an event loop.

Read ``batch_queue`` (what waits), ``batcher``, ``async_batcher``. Imports ``client.log`` and ``slogd``.
"""

__all__ = ["async_batcher", "batch_queue", "batcher"]

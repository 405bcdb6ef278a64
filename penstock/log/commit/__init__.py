"""From waiting appends to synced batches: what makes an append durable, and harmless when it is repeated.

Read ``batching``, ``deduplication``, ``writer`` (which fsyncs a topic), ``committer_threads``. Imports ``log.store``,
``log.errors``, ``log.settings``, ``log.plausible_clock`` and ``log.resources``.
"""

__all__ = ["batching", "deduplication", "writer", "committer_threads"]  # noqa: RUF022 reading order

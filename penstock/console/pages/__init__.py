"""The pages of the console, one module each.

Read ``overview``, the first page, then any other. Imports ``console``, ``config``, ``client`` and ``landing``.
"""

__all__ = ["overview", "listeners", "topics", "pipeline", "kafka", "configuration"]  # noqa: RUF022 reading order

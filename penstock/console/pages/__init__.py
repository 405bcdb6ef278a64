"""The pages of the console, one module each.

Read ``overview``, the first page, then any other. Imports ``console`` and ``config``.
"""

__all__ = ["overview", "listeners", "topics", "pipeline", "kafka", "configuration"]  # noqa: RUF022 reading order

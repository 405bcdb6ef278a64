"""The pages of the console, one module each.

Read ``overview``, the first page, with ``receipt``, then any other. Imports ``console``, ``config``, ``client``,
``landing``, ``sql`` and ``ledger``.
"""

__all__ = ["overview", "receipt", "listeners", "topics", "pipeline", "find", "sql", "kafka", "configuration"]  # noqa: RUF022 reading order

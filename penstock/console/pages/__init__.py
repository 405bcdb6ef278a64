"""The pages of the console, one module each.

Read ``overview``, the first page, with ``receipt``, then any other. Imports ``console``, ``config``, ``client``,
``landing`` and ``ledger``.
"""

__all__ = ["overview", "receipt", "listeners", "topics", "pipeline", "kafka", "configuration"]  # noqa: RUF022 reading order

"""Panels of pages: the receipt, a form for a test message, and the return of quarantined messages.

Read ``receipt``, ``send_message`` and ``send_back``. Imports ``console``, ``config``, ``client``, ``landing``,
``ledger``, ``sql`` and ``upkeep``.
"""

__all__ = ["receipt", "send_message", "send_back"]  # noqa: RUF022 reading order

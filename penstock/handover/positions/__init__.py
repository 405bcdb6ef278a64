"""Positions of readers in mapped files, the accounts of forwarders, and the restoring of a lost position.

Read ``position`` with ``lock_holder``, which kills a reader that holds its lock too long; then ``accounts`` and
``lost_position``. Imports ``handover``, ``logbuffer`` and ``process``.
"""

__all__ = ["position", "lock_holder", "accounts", "lost_position"]  # noqa: RUF022 reading order

"""Offsets that land out of turn, because somebody asked for them.

Read ``requests``, then ``backfill``. Imports ``landing``, ``landing.proof`` and ``log``.
"""

__all__ = ["requests", "backfill"]  # noqa: RUF022 reading order

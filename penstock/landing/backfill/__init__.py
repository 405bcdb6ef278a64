"""Offsets that land out of turn, because somebody asked for them.

Read ``requests``, then ``planner``. Imports ``landing``, ``landing.proof`` and ``log``.
"""

__all__ = ["requests", "planner"]  # noqa: RUF022 reading order

"""Trace one message through all stages, or find where and why it stopped.

Read ``tracer``, ``stations``, ``find_message``. Imports ``landing``, ``proof``, ``log`` and ``upkeep.quarantine``.
"""

__all__ = ["tracer", "stations", "find_message"]  # noqa: RUF022 reading order

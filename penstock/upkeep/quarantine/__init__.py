"""The way back into the log for rows in quarantine.

Read ``fixes`` (what mends them), ``send_back``, ``send_once`` (each row once, whatever is killed), ``preview``.
Imports ``landing``.
"""

__all__ = ["fixes", "send_back", "send_once", "preview"]  # noqa: RUF022 reading order

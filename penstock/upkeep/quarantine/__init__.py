"""Send rows in quarantine back into the log.

Read ``fixes`` (corrections of payloads), ``send_back``, ``send_once`` (each row once, after any crash), ``preview``.
Imports ``landing``.
"""

__all__ = ["fixes", "send_back", "send_once", "preview"]  # noqa: RUF022 reading order

"""Maintenance of written segments: verification, compaction, retention and deletion.

Read ``maintenance``, ``dropping``, ``compaction``, ``verify``, ``sweeper``. Imports ``files`` and ``log``.
"""

__all__ = ["maintenance", "dropping", "compaction", "verify", "sweeper"]  # noqa: RUF022 reading order

"""What is done to segments after they were written: checked, compacted, expired, removed.

Read ``maintenance``, ``dropping``, ``compaction``, ``verify``, ``sweeper``. Imports ``files`` and ``log``.
"""

__all__ = ["maintenance", "dropping", "compaction", "verify", "sweeper"]  # noqa: RUF022 reading order

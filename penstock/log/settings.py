"""Settings of a topic, and the limits that no setting can lift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Durability = Literal["received", "written", "synced"]

MAX_BATCH_BYTES = 512 << 20
"""Largest body of one append: well below the 2 GiB that 32-bit Arrow offsets can address."""
MERGE_BYTES = 8 << 20
MERGE_ROWS = 65_536
"""Appends that wait together are merged up to this size: larger batches gain nothing and are slower to sample."""
COMMIT_BYTES = 32 << 20
"""What one commit takes at most (but at least one append), so that memory and latency stay bounded."""
MAX_NAME = 200
"""Longest topic or cursor name in bytes, so that file names made of it stay below 255."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of one topic: sizes in bytes, times in seconds.

    ``durability``: what a resolved append promises: ``written`` (in the file: survives the process) or
    ``synced`` (on the disk: survives the machine). ``received`` is promised before the log; here it is ``written``.
    """

    message_size_limit: int = 16 << 20
    segment_size_limit: int = 16 << 20
    rotate_after: float = 6 * 3600.0
    durability: Durability = "synced"

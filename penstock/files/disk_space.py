"""Recognize a full disk in errors of any library, name the folder, and wait for space."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_SPACE_TEXT = "No space left on device"
PROBE_BYTES = 1 << 20
"""Space that a folder must have to count as writable again: more than a commit and its checkpoint need."""
POLL_INTERVAL_S = 5.0
FREED_BYTES, RETRY_S = 16 << 20, 300.0
"""Space that must become free before waiting ends, and the time after which it ends with PROBE_BYTES: a failed attempt
returns what it wrote, so that some space is always free after it, and is not enough.
"""
AMPLE_BYTES, AMPLE_SHARE = 1 << 30, 0.25
"""Free space of a disk, in bytes or as a share of a smaller disk, that ends a wait at once: it was freed before."""
AMPLE_PROBE_BYTES = 64 << 20
"""Largest file that must fit then: a quota does not show in the free space."""
_TEXT = re.compile(rf"{NO_SPACE_TEXT}|Disk quota exceeded|os error 28\b")
"""Texts of errors that have no number: of Java, and of delta-rs."""


def is_disk_full(error: BaseException) -> bool:
    """Report whether an error, of the system or in the text of another program, means that a disk is full."""
    return (isinstance(error, OSError) and error.errno in NO_SPACE) or bool(_TEXT.search(str(error)))


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Free bytes of the disk of a folder, and the bytes below which it is nearly full."""

    folder: Path
    free: int
    limit: int

    @property
    def missing(self) -> int:
        """Bytes by which the limit is undercut; 0 if it is not."""
        return max(self.limit - self.free, 0)


def local_disks(folders: Iterable[Path], limit_bytes: int, limit_share: float) -> list[DiskSpace]:
    """Return the space of the disks of existing folders, each disk once.

    A disk is nearly full below ``limit_bytes`` and below ``limit_share`` of its size: bytes alone would always report a
    small disk, and a share alone a large one. Quotas do not show.
    """
    disks: dict[int, DiskSpace] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            usage, device = shutil.disk_usage(folder), folder.stat().st_dev
            limit = min(limit_bytes, int(limit_share * usage.total))
            disks.setdefault(device, DiskSpace(folder, usage.free, limit))
    return list(disks.values())


def describe_full(folders: Mapping[str, Path]) -> str:
    """Return one line that names the full folders among ``folders`` (by their purpose), or all if none is full now."""
    full = {purpose: folder for purpose, folder in folders.items() if not has_space(folder)}
    named = " and ".join(f"{folder} ({purpose})" for purpose, folder in (full or folders).items())
    return f"no space left on device in {named}"


def has_space(folder: Path, probe_bytes: int = PROBE_BYTES) -> bool:
    """Report whether a file of ``probe_bytes`` fits into a folder, which is created if it does not exist."""
    probe = folder / f"probe.{uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A quota does not show in statvfs, so space is allocated and given back.
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, probe_bytes)
        finally:
            os.close(descriptor)
            probe.unlink()
    except OSError as error:
        return error.errno not in NO_SPACE
    return True


def wait_for_space(
    folders: Mapping[str, Path],
    stop: threading.Event,
    interval_s: float = POLL_INTERVAL_S,
    freed_bytes: int = FREED_BYTES,
    retry_s: float = RETRY_S,
    ample_is_enough: bool = True,
) -> bool:
    """Wait until each folder's disk has ``freed_bytes`` more than at its lowest, or ``retry_s`` pass.

    Ample space ends the wait, too, if ``ample_is_enough``. Return False if ``stop`` is set before.
    """
    deadline, lowest = time.monotonic() + retry_s, dict[int, int]()
    while True:
        is_last = time.monotonic() >= deadline
        # Each folder is looked at: one without space must not hide the lowest space of the next.
        ready = [_may_retry(folder, lowest, freed_bytes, ample_is_enough, is_last) for folder in folders.values()]
        if all(ready):
            return True
        if stop.wait(interval_s):
            return False


def _may_retry(folder: Path, lowest: dict[int, int], freed_bytes: int, ample_is_enough: bool, is_last: bool) -> bool:
    """Report whether a folder has space again; ``lowest`` has the least free bytes of each disk and is kept up."""
    if not has_space(folder):
        return False
    try:
        device, (disk,) = folder.stat().st_dev, local_disks([folder], AMPLE_BYTES, AMPLE_SHARE)
    except (OSError, ValueError):  # it cannot be looked at: the next attempt names the reason
        return is_last
    lowest[device] = min(lowest.get(device, disk.free), disk.free)
    is_ample = not disk.missing and has_space(folder, min(AMPLE_PROBE_BYTES, max(disk.limit // 2, PROBE_BYTES)))
    return (ample_is_enough and is_ample) or is_last or disk.free >= lowest[device] + freed_bytes

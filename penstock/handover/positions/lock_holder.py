"""The holder of a file lock: a reader that is stopped while it holds its lock would block the writer."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from penstock.process.forked import short_name

LOCKS = Path("/proc/locks")


def lock_holder(path: Path) -> int | None:
    """Return the pid of the holder of the flock on ``path``; None if there is none or it is unknown."""
    inode = str(path.stat().st_ino)
    with contextlib.suppress(OSError):
        for line in LOCKS.read_text().splitlines():
            # 1: FLOCK  ADVISORY  WRITE 1234 08:01:567890 0 EOF
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                return int(fields[4])
    return None


def end_holder(path: Path, module: str, only_stopped: bool = False) -> bool:
    """Kill the holder of the lock on ``path`` if it runs ``module`` (and is stopped by a signal); report whether it
    did.
    """
    pid = lock_holder(path)
    if pid is None or pid <= 0 or pid == os.getpid():
        return False
    try:
        # The pid may be reused or belong to another program: only Penstock's own reader is killed.
        if not _runs(pid, module) or (only_stopped and not _is_stopped(pid)):
            return False
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _runs(pid: int, module: str) -> bool:
    # A forked process shows its module in its title, or only in its short name when the title had no room.
    if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
        return True
    return Path(f"/proc/{pid}/comm").read_text().rstrip("\n") == short_name(module)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")

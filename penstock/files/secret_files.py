"""Files with secrets: tokens, keys, salts. Others may neither read nor plant them.

The rule is that of PostgreSQL's private keys: the file belongs to the account of the process and other accounts have no
access, or it belongs to root and its group can read it, as secrets do that are mounted into containers.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from penstock.files.errors import UnsafeFile
from penstock.files.regular_files import check_regular

MAX_SECRET_BYTES = 1 << 20
"""Limit: certificate chains are the largest such files, with some 10 KB."""


def read_secret(path: Path) -> bytes:
    """Return the content of a file with a secret. Raises OSError and UnsafeFile."""
    # Before it is opened, because a socket cannot be. A shell's <(command) is a pipe.
    check_regular(path.stat(), path, allow_pipe=True)
    # A FIFO without a writer would block a plain open forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        # The open file is judged, not the path: another file may take its name in between.
        status = os.fstat(descriptor)
        check_regular(status, path, allow_pipe=True)
        if reason := unsafe_access(status, path):
            raise UnsafeFile(f"{path} {reason}")
        os.set_blocking(descriptor, True)
        return file.read(MAX_SECRET_BYTES)


def check_secret(path: Path) -> None:
    """Check a file that a library reads by its name, as ``read_secret`` checks it. Raises UnsafeFile.

    A file that this process cannot read is left to the library, which reports it.
    """
    if os.access(path, os.R_OK):
        check_regular(status := path.stat(), path, allow_pipe=True)
        if reason := unsafe_access(status, path):
            raise UnsafeFile(f"{path} {reason}")


def unsafe_access(status: os.stat_result, path: Path) -> str:
    """Return why a file is not safe for a secret; empty if it is."""
    mode, user = stat.S_IMODE(status.st_mode), os.geteuid()
    # Commands of root read the token of the account that owns the data directory.
    owners = {user, 0} | ({path.parent.stat().st_uid} if user == 0 else set())
    if status.st_uid not in owners:
        return f"belongs to user {status.st_uid}, not to user {user} or root: remove it, or change its owner"
    # Root itself reads its file too: commands of root check what the daemon's account reads by its group.
    is_for_group = user == status.st_uid == 0 != status.st_gid
    allowed = 0o640 if status.st_uid != user or is_for_group else 0o600
    if mode & 0o077 & ~allowed:
        return f"has mode {mode:04o}, so that others have access to it: chmod {allowed:o} {path}"
    return ""

"""Ending with the parent: a process of Penstock never outlives its supervisor unnoticed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Has the kernel kill this process when its parent dies (Linux); its files tell the next one all.

    The first argument of the command line is the process id of the parent. A terminal that is closed is the parent's
    affair.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        raise SystemExit("the process that started this one is gone")

"""How many files a process may have open: sockets, eventfds and connections are files too."""

from __future__ import annotations

import resource


def raise_file_limit() -> int:
    """Takes as many as are allowed, for this process and those it starts; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard

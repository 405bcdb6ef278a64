"""The life of a process: tuning, child processes, the end, reports, and servers with their limits.

Read ``tuning`` (what each process calls first), ``child`` (a process that is restarted), ``forked`` (a child that
shares loaded code), ``module_search``, ``process_end``, ``kernel`` (requests to Linux), ``freeze`` (of the processes
that use a folder), ``reporting`` (log lines), ``terminal`` (text that is safe to print), ``ledger_posts`` (of
programs that only count), and ``servers``. Imports ``errors`` and ``files``.
"""

__all__ = [  # noqa: RUF022 reading order
    "tuning",
    "child",
    "forked",
    "module_search",
    "process_end",
    "kernel",
    "freeze",
    "reporting",
    "terminal",
    "ledger_posts",
    "servers",
]

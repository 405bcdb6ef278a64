"""The life of a process: tuning, child processes, the end, reports, and the limits of servers.

Read ``tuning`` (what each process calls first), ``child`` (a process that is restarted), ``forked`` (a child that
shares loaded code), ``process_end``, ``kernel`` (requests to Linux), ``freeze`` (of the processes that use a folder),
``server_loop``, ``port_owner``, ``reporting`` (log lines), ``terminal`` (text that is safe to print),
``in_flight_bytes``, ``http_limits``, ``bounded_calls`` and ``connection_limit`` (limits of servers), ``call_queue`` and
``calls`` (a gRPC server). Imports ``errors`` only.
"""

__all__ = [  # noqa: RUF022 reading order
    "tuning",
    "child",
    "forked",
    "process_end",
    "kernel",
    "freeze",
    "server_loop",
    "port_owner",
    "reporting",
    "terminal",
    "in_flight_bytes",
    "http_limits",
    "bounded_calls",
    "connection_limit",
    "call_queue",
    "calls",
]

"""Servers of a process: the event loop, the owner of a port, limits, and gRPC calls on grpcio's completion queue.

Read ``event_loop`` and ``port_owner``; then the limits ``in_flight_bytes``, ``http_limits``, ``http_connection``
with its ``lingering_transport``, ``bounded_calls`` and ``connection_limit``; then ``call_queue`` and ``calls``, a gRPC
server. Imports ``errors`` and ``process.kernel``.
"""

__all__ = [  # noqa: RUF022 reading order
    "event_loop",
    "port_owner",
    "in_flight_bytes",
    "http_limits",
    "http_connection",
    "lingering_transport",
    "bounded_calls",
    "connection_limit",
    "call_queue",
    "calls",
]

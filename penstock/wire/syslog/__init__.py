"""Syslog without I/O: batches of messages to annotations, or to columns.

Read ``headers`` (priority, fields, and the start of the message), ``times`` (interpretation of timestamps),
``structured_data`` (RFC 5424's parameters), ``framing`` (bytes of the transport around a message), ``codec`` (decoder
of a listener) and ``columns`` (the same fields as columns of a table). Imports ``wire``, ``records`` and ``counts``.
"""

__all__ = [  # noqa: RUF022 reading order
    "headers",
    "times",
    "structured_data",
    "framing",
    "codec",
    "columns",
]

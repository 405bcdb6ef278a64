"""syslog without I/O: whole batches of messages to annotations, or to columns.

Read ``headers`` (priority, fields, and where the message behind them begins), ``times`` (what the times of headers
mean), ``structured_data`` (RFC 5424's parameters), ``framing`` (what belongs to the transport and not to the message),
``codec`` (the decoder of a listener) and ``columns`` (the same fields as columns of a table). Imports ``wire``,
``records`` and ``counts``.
"""

__all__ = [  # noqa: RUF022 reading order
    "headers",
    "times",
    "structured_data",
    "framing",
    "codec",
    "columns",
]

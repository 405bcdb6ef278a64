"""Syslog without I/O: batches of messages to annotations, or to columns.

Read ``headers`` (priority, fields, and the start of the message), ``times`` (interpretation of timestamps),
``structured_data`` (RFC 5424's parameters), all three on ``octets`` (many messages in one buffer), ``few_messages``
(the same for a few messages), ``framing`` (bytes of the transport around a message), ``codec`` (decoder
of a listener) and ``columns`` (the same fields as columns of a table). Imports ``wire``, ``records`` and ``counts``.
"""

__all__ = [  # noqa: RUF022 reading order
    "octets",
    "headers",
    "times",
    "structured_data",
    "few_messages",
    "framing",
    "codec",
    "columns",
]

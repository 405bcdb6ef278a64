"""Framing of streams: bytes of a TCP connection become lines, as columns.

Start with ``line_framing`` (delimiters and octet counts of one read) and ``lines`` (a connection's splitter);
``multiline`` joins the lines of a stack trace, ``compressed_streams`` unpacks a stream before it is split.
Imports ``wire.datagrams``, ``wire.plog`` and ``counts``.
"""

__all__ = [  # noqa: RUF022 reading order
    "line_framing",
    "lines",
    "multiline",
    "compressed_streams",
]

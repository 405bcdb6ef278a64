"""GELF without I/O: datagrams and their chunks, or what NULs end on TCP, to messages with annotations.

Read ``fields`` (what a message's JSON says, as annotations), ``unpacking`` (zlib and gzip, within bounds), ``chunks``
(messages in several datagrams), then ``codec`` (the decoder of a listener). Imports ``wire``, ``records`` and
``counts``.
"""

__all__ = [  # noqa: RUF022 reading order
    "fields",
    "unpacking",
    "chunks",
    "codec",
]

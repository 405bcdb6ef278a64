"""GELF without I/O: datagrams and their chunks, or the bytes of TCP connections, to messages with annotations.

Read ``fields`` (the fields of a message as annotations), ``unpacking`` (zlib and gzip, bounded), ``chunks`` (messages
in several datagrams), ``codec`` (the decoder of a listener), then ``splitter`` (connections). Imports ``wire``,
``records`` and ``counts``.
"""

__all__ = [  # noqa: RUF022 reading order
    "fields",
    "unpacking",
    "chunks",
    "codec",
    "splitter",
]

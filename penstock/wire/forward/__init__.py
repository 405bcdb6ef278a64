"""Fluent's forward protocol without I/O: the bytes of a connection to messages and replies.

Read ``requests`` (one request: Message, Forward, PackedForward, compressed or not), ``handshake`` (the shared key),
``splitter`` (a connection) and ``codec`` (the decoder of a listener). Imports ``wire``, ``records`` and ``counts``.
"""

__all__ = ["requests", "handshake", "splitter", "codec"]  # noqa: RUF022 reading order

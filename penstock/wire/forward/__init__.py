"""Fluent's forward protocol without I/O: the bytes of a connection to messages and replies.

Read ``requests`` (one request: Message, Forward, PackedForward, compressed or not) with ``event_rows`` (its events),
``handshake`` (the shared key), ``splitter`` (a connection) and ``codec`` (the decoder of a listener). Imports ``wire``,
``records`` and ``counts``.
"""

__all__ = ["requests", "event_rows", "handshake", "splitter", "codec"]  # noqa: RUF022 reading order

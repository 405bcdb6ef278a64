"""Protocols without I/O: bytes in, batches and counts out.

Input as columns: ``decoded`` (the output of every decoder), ``datagrams``, ``framing/`` (lines of streams),
``unpacking``, ``message_ids``. Codecs: ``raw``, ``syslog/``, ``plog/``, ``gelf/``, ``forward/``;
``source_annotations``, ``sender_text``, ``growth``, ``meters``, ``own_codec`` (a user's), ``codecs`` (all codecs by
name). Requests: ``json_text``, ``requests`` (the interface of request protocols), ``protobuf``, ``otlp/``, ``otap/``,
``http/`` (JSON, HEC, bulk, Loki), ``request_protocols`` (the table of them).

Imports ``records``, ``counts`` and ``errors``.
"""

__all__ = [  # noqa: RUF022 reading order
    "decoded",
    "datagrams",
    "framing",
    "unpacking",
    "message_ids",
    "raw",
    "syslog",
    "plog",
    "gelf",
    "forward",
    "source_annotations",
    "sender_text",
    "growth",
    "meters",
    "own_codec",
    "codecs",
    "json_text",
    "requests",
    "protobuf",
    "otlp",
    "otap",
    "http",
    "request_protocols",
]

"""Protocols without I/O: bytes in, batches and counts out.

Input as columns: ``decoded`` (the output of every decoder), ``datagrams``, ``line_framing``, ``lines``, ``multiline``,
``compressed_streams``, ``unpacking``, ``message_ids``. Codecs: ``raw``, ``syslog/``, ``plog/``, ``gelf/``,
``forward/``;
``source_annotations``, ``sender_text``, ``growth``, ``meters``, ``own_codec`` (a user's), ``codecs`` (all codecs by
name). Requests: ``json_text``, ``requests`` (the interface of request protocols), ``protobuf``, ``otlp/``, ``otap/``,
``json_documents``, ``hec``, ``bulk``, ``loki``, ``request_protocols`` (the table of them).

Imports ``records``, ``counts`` and ``errors``.
"""

__all__ = [  # noqa: RUF022 reading order
    "decoded",
    "datagrams",
    "line_framing",
    "lines",
    "multiline",
    "compressed_streams",
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
    "json_documents",
    "hec",
    "bulk",
    "loki",
    "request_protocols",
]

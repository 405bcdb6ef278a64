"""Protocols without I/O: bytes in, batches and counts out.

Read ``decoded`` (what a decoder gives back), ``datagrams`` and ``line_framing``, ``lines`` with ``multiline`` and
``compressed_streams`` (what came in, as columns), ``unpacking``, ``message_ids``,
the codecs ``raw``, ``syslog/``, ``plog/``, ``gelf/`` and ``forward/``, then
``source_annotations``, ``sender_text``, ``growth``, ``meters``, ``own_codec`` (a user's) and ``codecs`` (all of them
by name). Protocols of requests: ``json_text``, ``requests`` (what a door makes of one), ``protobuf``,
``otlp/``, ``json_documents``, ``hec``, ``bulk``, ``loki``, then ``doors``, the table of them. Imports ``records``,
``counts`` and ``errors``.
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
    "json_documents",
    "hec",
    "bulk",
    "loki",
    "doors",
]

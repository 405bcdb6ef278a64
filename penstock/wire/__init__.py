"""Protocols without I/O: bytes in, batches and counts out.

Read ``decoded`` (what a decoder gives back), ``datagrams`` and ``lines`` with ``multiline`` (what came in, as
columns), the codecs ``raw``, ``syslog/`` and ``plog/``, then ``source_annotations``, ``sender_text`` and ``meters``.
Imports ``records`` and ``counts``.
"""

__all__ = [  # noqa: RUF022 reading order
    "decoded",
    "datagrams",
    "lines",
    "multiline",
    "raw",
    "syslog",
    "plog",
    "source_annotations",
    "sender_text",
    "meters",
]

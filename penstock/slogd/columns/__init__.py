"""Entries as protobuf's bytes and as record batches, both ways.

Read ``entries`` (messages and rows), ``decode``, ``encode``, then ``wire_columns`` (protobuf's wire format written for
whole columns). Imports ``records`` and ``slogd``.
"""

__all__ = ["decode", "encode", "entries", "wire_columns"]

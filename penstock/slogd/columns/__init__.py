"""Entries as protobuf's bytes and as record batches, in both directions.

Read ``entries`` (messages and rows), ``decode`` with ``gathered``, ``encode``, then ``wire_columns`` (protobuf's
wire format written for whole columns). Imports ``counts``, ``records`` and ``slogd``.
"""

__all__ = ["decode", "encode", "entries", "gathered", "wire_columns"]

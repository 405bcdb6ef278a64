"""Entries as protobuf's bytes and as record batches, in both directions.

Read ``entries`` (messages and rows), ``decode`` with ``gathered`` and ``ipc_message``, ``encode``, then
``wire_columns`` (protobuf's wire format written for whole columns). Imports ``counts``, ``records`` and ``slogd``.
"""

__all__ = ["decode", "encode", "entries", "gathered", "ipc_message", "wire_columns"]

"""OTAP, the OpenTelemetry Arrow protocol, without I/O: batches of log records in Arrow's IPC format to messages.

Read ``ipc_messages`` (limits before Arrow decodes), ``streams`` (state of one gRPC stream), ``cbor`` (nested values),
then ``batches`` (tables to messages). Imports ``wire``, ``records``, ``counts`` and ``errors``.
"""

__all__ = [  # noqa: RUF022 reading order
    "ipc_messages",
    "streams",
    "cbor",
    "batches",
]

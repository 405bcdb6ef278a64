"""slogd's API as server and client share it: the messages, and both of their forms on the wire.

Read ``slogd.proto`` (``slogd_pb2`` is generated from it), ``errors``, then ``columns`` (protobuf to and from batches)
and ``json``. Imports ``records`` and ``errors`` only.
"""

__all__ = ["columns", "errors", "json", "slogd_pb2"]

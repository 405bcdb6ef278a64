"""slogd's API, shared by server and client: the messages and both of their encodings.

Read ``slogd.proto`` (``slogd_pb2`` is generated from it), ``errors``, then ``columns`` (protobuf to and from batches)
and ``json``. Imports ``counts``, ``records`` and ``errors`` only.
"""

__all__ = ["columns", "errors", "json", "slogd_pb2"]

"""slogd's API as server and client share it: the messages, and both of their forms on the wire.

Read ``slogd.proto``, ``errors``, then ``columns/`` (protobuf to and from batches) and ``json/``.
Imports ``records`` only.
"""

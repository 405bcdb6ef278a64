"""LogEntry messages to record batches and back, whole columns at a time.

Read ``entries``, ``decode``, ``encode``, then ``wire_columns`` (protobuf's wire format over numpy arrays).
Imports ``slogd``.
"""

"""Kafka's record batches (version 2): decompression, varints and spans of records, whole columns at a time.

Read ``varints``, ``record_spans``, ``compression``, then ``batch_headers`` (which offsets a stored batch covers).
Without I/O. Imports ``records``, ``wire`` and ``kafka.errors``.
"""

__all__ = ["batch_headers", "compression", "record_spans", "varints"]

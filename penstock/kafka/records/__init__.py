"""Kafka's record batches (version 2): compression, varints and the bounds of records, whole columns at a time.

Read ``varints``, ``record_places`` (where each record of a batch begins), ``compression``, then ``batch_headers``
(which offsets a stored batch covers). Without I/O. Imports ``records`` and ``kafka.errors``.
"""

__all__ = ["batch_headers", "compression", "record_places", "varints"]

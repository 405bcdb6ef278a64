"""Kafka's record batches (version 2): compression, varints and the bounds of records, whole columns at a time.

Read ``varints``, ``record_places`` (where each record of a batch begins), then ``compression``. Without I/O. Imports
``records`` and ``kafka.errors``.
"""

__all__ = ["compression", "record_places", "varints"]

"""Kafka's record batches (version 2) to and from Arrow, whole columns at a time.

Read ``varints``, ``record_places`` (where each record of a batch begins), ``headers`` (as annotations),
``compression``, ``few_records``, then ``decode`` and ``encode``. Imports ``records``, ``errors`` and
``server.kafka.errors``.
"""

__all__ = ["compression", "decode", "encode", "few_records", "headers", "record_places", "varints"]

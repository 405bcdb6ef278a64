"""Kafka's record batches (version 2) to and from Arrow, whole columns at a time.

Read ``penstock.kafka.records``, then ``headers``, ``few_records``, ``decode``, ``encode`` and ``creation_times``.
Imports ``records``, ``errors``, ``kafka.errors``, ``kafka.records`` and ``server.kafka.errors``.
"""

__all__ = ["creation_times", "decode", "encode", "few_records", "headers"]

"""The landing query: from topics to the one table, and the worker that proves each batch.

Read ``landing_query``, ``message_kinds``, ``type_schemas``, ``kafka_source``, ``proof_worker``.
Imports ``spark.source`` and ``landing``.
"""

"""Large messages split over Kafka records, in the format of li-apache-kafka-clients, without I/O.

Read ``segments`` and ``headers`` (the formats), ``splitter``, ``assembler`` with ``incomplete_messages``,
``record_processor``, ``safe_offsets``. Imports ``kafka.errors`` only.
"""

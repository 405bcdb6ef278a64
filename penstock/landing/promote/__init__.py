"""A topic of the log goes on in Kafka. Read ``promotion``, ``offset_map``, ``moved_topics``, ``kafka_writer``.

Imports ``landing`` and ``kafka``.
"""

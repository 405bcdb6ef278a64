"""Convert Kafka's requests and answers from and to bytes, with the classes that kio generates from Kafka's definitions.

Read ``messages``, ``reading`` (bounded parsing), then ``stored_answers`` (a fast path). Imports
``server.kafka.errors``.
"""

__all__ = ["messages", "reading", "stored_answers"]

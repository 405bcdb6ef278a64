"""Answer clients and administrators about the broker, its topics and their settings.

Read ``cluster``, then ``topics``. Imports ``log``, ``server`` and ``server.kafka.schema``.
"""

__all__ = ["cluster", "topics"]

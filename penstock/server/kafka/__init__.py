"""Kafka's protocol: every client of Kafka reads and writes the topics of the log.

Read ``endpoint`` (the listener), ``limits``, ``connection``, ``schema`` and ``calls``, then the handlers of requests:
``metadata``, ``entries`` and ``groups``. ``records`` converts record batches from and to Arrow. Imports
``process``, ``config``, ``log``, ``kafka.errors``, ``slogd`` and ``server``.
"""

__all__ = [
    "calls",
    "connection",
    "endpoint",
    "entries",
    "errors",
    "groups",
    "limits",
    "metadata",
    "records",
    "schema",
]

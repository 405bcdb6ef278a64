"""Kafka's protocol: every client of Kafka reads and writes the topics of the log.

Read ``door`` (the listener), ``frames``, ``connection`` with ``limits``, ``messages``, ``reading``, ``sasl``,
``calls``, then what is answered: ``cluster``, ``produce``, ``fetch`` with ``fetch_sessions`` and ``pages``, ``topics``,
``groups`` with ``group_state`` and ``group_offsets``. ``records`` are record batches to and from Arrow. Imports
``process``, ``config``, ``log``, ``slogd`` and ``server``.
"""

__all__ = [
    "calls",
    "cluster",
    "connection",
    "door",
    "errors",
    "fetch",
    "fetch_sessions",
    "frames",
    "group_offsets",
    "group_state",
    "groups",
    "limits",
    "messages",
    "pages",
    "produce",
    "reading",
    "records",
    "sasl",
    "topics",
]

"""Log daemon: serves topics by gRPC, HTTP, Flight and Kafka's protocol, and keeps the ledger.

Read ``daemon`` (the process), ``servers`` (the open ports) and ``live_settings``; then the core: ``auth`` (rights and
the topics that a caller may use), ``reading`` (queries and pages), ``read_ahead`` (the cache of pages) and ``api``
(what every protocol offers); then one folder per protocol: ``grpc``, ``http``, ``flight``, ``kafka``. ``event_loop``
brings results of threads to the loop; ``metrics`` and ``alarms`` report. Imports any room before it: ``log``,
``handover``, ``supervise``, ``slogd``, ``ledger``.
"""

__all__ = [
    "alarms",
    "api",
    "auth",
    "daemon",
    "event_loop",
    "flight",
    "grpc",
    "http",
    "kafka",
    "live_settings",
    "metrics",
    "read_ahead",
    "reading",
    "servers",
]

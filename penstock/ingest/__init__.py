"""The receiver process of a listener: from its sockets through the decoders of ``wire`` into its log buffer.

Read ``sockets`` and ``slots`` (what the supervisor hands down), ``udp`` and ``tcp`` with ``connections`` and ``tls``
(a receive round), ``plog_commands`` with ``handler_statistics`` (PING, STAT, ENVI, KILL) and ``loss_reports``, then
``receiver`` (the process). Imports ``config``, ``counts``, ``records``, ``process``, ``wire`` and ``handover``; only
``supervise`` and ``cli`` import it.
"""

__all__ = [  # noqa: RUF022 reading order
    "sockets",
    "slots",
    "udp",
    "connections",
    "tls",
    "tcp",
    "plog_commands",
    "handler_statistics",
    "loss_reports",
    "receiver",
]

"""The receiver process of a listener: from its sockets through the decoders of ``wire`` into its log buffer.

Read ``local_sockets``, ``sockets`` and ``slots`` (inherited from the supervisor), ``networks`` (who may send), ``udp``
and ``tcp`` with ``connections``, ``acknowledgements``, ``line_publisher`` and ``tls`` (a receive round), the folder
``requests`` (requests whose senders wait), ``plog_commands`` with ``handler_statistics`` (PING, STAT, ENVI, KILL) and
``loss_reports``, then ``receiver`` (the process). Imports ``config``, ``counts``, ``records``, ``errors``, ``process``,
``wire`` and ``handover``; only ``supervise`` and ``cli`` import it.
"""

__all__ = [  # noqa: RUF022 reading order
    "local_sockets",
    "sockets",
    "slots",
    "networks",
    "udp",
    "connections",
    "acknowledgements",
    "line_publisher",
    "tls",
    "tcp",
    "requests",
    "plog_commands",
    "handler_statistics",
    "loss_reports",
    "receiver",
]

"""The supervisor: it opens sockets, starts the processes of the pipe, and starts them again when they die.

Read ``supervisor``, ``handler_checks``, ``listener_processes``, ``reload`` with ``listener_swap`` and
``removed_handlers`` (``waiting_frames``), then ``daemon_channel`` with ``timeline``, ``endpoints`` and ``sd_notify``.
Imports ``config``, ``process``, ``logbuffer``, ``handover``, ``ingest`` and ``wire.codecs``, and starts its children by
module name. It loads numpy and Arrow when it starts them, for they share what it has loaded.
"""

__all__ = [  # noqa: RUF022 reading order
    "supervisor",
    "handler_checks",
    "listener_processes",
    "reload",
    "listener_swap",
    "removed_handlers",
    "waiting_frames",
    "daemon_channel",
    "timeline",
    "endpoints",
    "sd_notify",
]

"""The supervisor: it opens sockets, starts the processes of the pipe, and restarts them when they die.

Read ``supervisor`` with ``data_directory``, ``listener_checks``, ``listener_processes``, ``reload`` with
``listener_swap`` and ``removed_handlers`` (``waiting_frames``), ``succession`` with ``installation``, then
``daemon_channel`` with ``timeline``, ``endpoints`` (``instances``) and ``sd_notify``. Imports ``config``, ``process``,
``logbuffer``, ``handover``, ``ingest`` and ``wire.codecs``, and starts its children by module name. It loads numpy and
Arrow only when it starts them, because its children share the loaded memory.
"""

__all__ = [  # noqa: RUF022 reading order
    "supervisor",
    "data_directory",
    "listener_checks",
    "listener_processes",
    "reload",
    "listener_swap",
    "removed_handlers",
    "waiting_frames",
    "succession",
    "installation",
    "daemon_channel",
    "timeline",
    "endpoints",
    "instances",
    "sd_notify",
]

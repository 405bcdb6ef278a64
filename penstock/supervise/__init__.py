"""The supervisor: it opens sockets, starts the processes of the pipe, and starts them again when they die.

Read ``supervisor``, ``listener_processes``, ``reload`` with ``listener_swap`` and ``removed_handlers``, then
``daemon_channel`` and ``sd_notify``. Imports ``ingest`` and what is above it; starts its children by module name.
"""

"""The command ``penstock``: each command is a function with typer's options.

Read ``commands`` (the table of commands), ``main`` (the entry point), ``command_line``, ``options`` (options of several
commands), ``common``, ``progress`` and ``completion``, then the folders ``run``, ``listener``, ``log``, ``tables`` and
``kafka``, and the commands on the books: ``balance`` with ``balance_tables`` and ``host_balance``, ``senders`` and
``audit``. Imports any room before it, but only in the modules of commands, and ``command_line`` imports only the module
of the command that is called; no ``__init__`` here imports anything.
"""

__all__ = [  # noqa: RUF022 reading order
    "commands",
    "main",
    "command_line",
    "options",
    "common",
    "progress",
    "completion",
    "run",
    "listener",
    "log",
    "tables",
    "balance",
    "balance_tables",
    "host_balance",
    "senders",
    "audit",
    "kafka",
]

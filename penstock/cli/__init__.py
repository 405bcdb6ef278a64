"""The command ``penstock``: each command is a function of its own, made of typer's options.

Read ``main`` (which command is in which module), ``options`` (what several commands take) with ``plain_words``,
``common``, ``progress``
and ``completion``, then the folders. Imports any room before it, but only in the modules of commands, which ``main``
imports when they are asked for; no ``__init__`` here imports anything.
"""

__all__ = [  # noqa: RUF022 reading order
    "main",
    "options",
    "plain_words",
    "common",
    "progress",
    "completion",
    "run",
    "listener",
    "log",
    "tables",
    "balance",
    "balance_tables",
    "events",
    "kafka",
]

"""Commands that run the pipe and look after the machine: up, serve, reload, console, doctor, drill, config.

Read ``up`` (with ``ledger_door``, ``sample_tour`` and ``sample_messages``), ``serve``, ``reload``, ``console``,
``doctor`` with ``machine_checks``, ``drill``, ``config`` with ``config_reference`` and ``api_reference``. Imports any
room before it, inside functions where that is slow or needs an extra. Beside them ``cli``.
"""

__all__ = [  # noqa: RUF022 reading order
    "up",
    "ledger_door",
    "sample_tour",
    "sample_messages",
    "serve",
    "reload",
    "console",
    "doctor",
    "machine_checks",
    "drill",
    "config",
    "config_reference",
    "api_reference",
]

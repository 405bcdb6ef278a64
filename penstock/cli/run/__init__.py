"""Commands that run, control and check Penstock: up, serve, console, reload, restart, clock, events, alarms, users,
changes, doctor, drill, backup, tls, config.

Read ``up`` with ``up_processes``, ``sample_tour`` and ``sample_messages``, ``serve``, ``daemon_commands``, ``alarms``,
``users``, ``doctor`` with ``machine_checks``, ``drill``, ``backup``, ``tls``, ``config`` with ``config_reference`` and
``api_reference``.
Imports any room before it, inside functions if that is slow or needs an extra. Also ``cli``.
"""

__all__ = [  # noqa: RUF022 reading order
    "up",
    "up_processes",
    "sample_tour",
    "sample_messages",
    "serve",
    "daemon_commands",
    "alarms",
    "users",
    "doctor",
    "machine_checks",
    "drill",
    "backup",
    "tls",
    "config",
    "config_reference",
    "api_reference",
]

"""All keys of the configuration as pydantic models: one module for each part of the tree.

Read ``tree`` (all settings), then ``listeners``, ``handlers``, ``log``, ``security`` (TLS and tokens), ``relay``,
``pipeline`` with ``typed``, ``export``, ``console``, ``sql``, ``otel`` and ``alarms``; ``values`` has the types of
values, ``secrets`` masks secret ones. Imports ``config.units``, ``config.syntax``, ``config.nearest_name``,
``config.default_listeners`` and ``errors``.
"""

__all__ = [
    "alarms",
    "console",
    "export",
    "handlers",
    "listeners",
    "log",
    "otel",
    "pipeline",
    "relay",
    "secrets",
    "security",
    "sql",
    "tree",
    "typed",
    "values",
]

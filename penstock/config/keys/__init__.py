"""Every key of the configuration, as pydantic models: one module for each part of the tree.

Read ``tree`` (the whole), then ``listeners`` with ``sender_tls``, ``handlers``, ``log``, ``security`` with ``tls``,
``pipeline`` with ``typed``, ``console`` and ``otel``; ``values`` has the types of values, ``secrets`` what is never
shown. Imports ``config.units``, ``config.nearest_name``, ``config.default_listeners``, ``config.tables_url`` and
``errors``.
"""

__all__ = [
    "console",
    "handlers",
    "listeners",
    "log",
    "otel",
    "pipeline",
    "secrets",
    "security",
    "sender_tls",
    "tls",
    "tree",
    "typed",
    "values",
]

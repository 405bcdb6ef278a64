"""Alarms: rules over the daemon's metrics, told to a webhook or a command when they begin to hold, and when they end.

Read ``rules`` (the one definition, of which Prometheus' file is made too), ``evaluation``, ``watch``, then
``delivery``. Imports ``config``, ``ledger`` and ``server.metrics``.
"""

__all__ = ["delivery", "evaluation", "rules", "watch"]

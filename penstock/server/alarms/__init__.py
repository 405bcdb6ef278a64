"""Alarms: rules over the daemon's metrics, reported when they begin and when they end.

Read ``rules`` (from which Prometheus' rule file is generated, too), ``evaluation``, ``watch``, then ``templates`` and
``delivery``. Imports ``config``, ``ledger`` and ``server.metrics``.
"""

__all__ = ["delivery", "evaluation", "rules", "templates", "watch"]

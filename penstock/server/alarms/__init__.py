"""Alarms: rules over the daemon's metrics, reported when they begin and when they end.

Read ``rules`` (from which Prometheus' rule file is generated, too), ``evaluation``, ``watch``, then ``templates``,
``delivery`` and ``register``. Imports ``config``, ``files``, ``ledger``, ``slogd`` and ``server.metrics``.
"""

__all__ = ["delivery", "evaluation", "register", "rules", "templates", "watch"]

"""Alarms: rules over the daemon's metrics, reported when they begin and when they end.

Read ``rules`` (from which Prometheus' rule file is generated, too), ``evaluation``, ``watch``, then ``templates``,
``delivery``, ``delivery_process`` and ``register``. Imports ``config``, ``files``, ``ledger``, ``process``, ``slogd``
and ``server.metrics``.
"""

__all__ = ["delivery", "delivery_process", "evaluation", "register", "rules", "templates", "watch"]

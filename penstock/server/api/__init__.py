"""Core API of the daemon, the same for every protocol: checks rights, calls the log, raises ApiError.

Read ``entries`` (append, get, search, follow), then ``administration`` (topics, transactions, cursors) and
``monitoring`` (statistics, metrics, balance, ledger). Imports ``config``, ``handover``, ``ledger``, ``log``, ``slogd``
and ``server``.
"""

__all__ = ["administration", "entries", "monitoring"]

"""Who may do what, and TLS.

Read ``rights`` (a token's rights on topics), then ``server_tls``. Imports ``config``, ``ledger``,
``log`` and ``slogd``.
"""

__all__ = ["rights", "server_tls"]

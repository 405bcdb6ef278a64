"""Rights of callers, the topics that they may use, and TLS.

Read ``rights`` (a token's rights on topics), ``permitted_topics``, then ``server_tls``. Imports ``config``, ``ledger``,
``log`` and ``slogd``.
"""

__all__ = ["permitted_topics", "rights", "server_tls"]

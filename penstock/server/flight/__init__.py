"""Arrow Flight: topics in whole batches.

Read ``server``, ``tickets`` (what a reader asks for), ``batch_messages`` and ``puts``, then ``actions``. Imports
``records``, ``process``, ``log``, ``slogd`` and ``server``.
"""

__all__ = ["actions", "batch_messages", "puts", "server", "tickets"]

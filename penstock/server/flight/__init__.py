"""Arrow Flight: topics in whole batches.

Read ``server``, ``tickets`` (what a reader asks for), then ``actions``. Imports ``records``, ``log``, ``slogd`` and
``server``.
"""

__all__ = ["actions", "server", "tickets"]

"""The client of the log daemon, blocking and for asyncio.

Read ``client`` and ``async_client`` (the public ones), ``connection``, ``calls`` and ``admin_calls`` (requests and
answers without I/O), ``transaction``, ``batcher``. Imports ``slogd``.
"""

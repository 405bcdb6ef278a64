"""slogd's JSON: the requests and responses of its HTTP gateway.

Read ``values`` (JSON, base64, times), ``append_request``, then ``entry_documents``. Imports ``records``, ``slogd`` and
``slogd.columns``.
"""

__all__ = ["append_request", "entry_documents", "values"]

"""slogd's JSON: what its HTTP gateway takes and answers.

Read ``values`` (JSON, base64, times), ``append_request``, then ``entry_documents``. Imports ``records``, ``slogd`` and
``slogd.columns``.
"""

__all__ = ["append_request", "entry_documents", "values"]

"""The gRPC service ``slogd.StructuredLog``, with reflection and health.

Read ``service`` (calls with entries), ``admin_calls``, then ``call_errors``. Imports ``slogd`` and ``server``.
"""

__all__ = ["admin_calls", "call_errors", "service"]

"""The gRPC service ``slogd.StructuredLog``, with reflection and health.

Read ``service`` (calls with entries), ``admin_calls``, ``call_errors``, then ``reflection`` and ``closed_calls``.
Imports ``config``, ``slogd`` and ``server``.
"""

__all__ = ["admin_calls", "call_errors", "closed_calls", "reflection", "service"]

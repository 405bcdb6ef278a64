"""The gRPC service ``slogd.StructuredLog``, with reflection and health.

Read ``service`` (calls with entries), ``admin_calls``, ``call_errors``, then ``call_server`` with ``call_threads`` and
``calls`` (how calls are taken and answered), ``pulled_answers``, ``reflection`` and ``closed_calls``.
Imports ``config``, ``process``, ``log.commit``, ``slogd`` and ``server``.
"""

__all__ = [
    "admin_calls",
    "call_errors",
    "call_server",
    "call_threads",
    "calls",
    "closed_calls",
    "pulled_answers",
    "reflection",
    "service",
]

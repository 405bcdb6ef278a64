"""The gRPC service ``slogd.StructuredLog``. Read ``service``, ``admin_calls``, ``call_errors``. Imports ``server``."""

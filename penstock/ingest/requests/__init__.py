"""Requests whose senders wait until they are stored: HTTP, OTLP over gRPC and OTAP.

Start with ``request_writer`` (from a request to its frames and its answer), ``submissions``, ``tokens``,
``body_decompression`` and ``large_requests``, then the servers: ``http``, and ``otlp_grpc`` with ``otlp_export`` and
``otap``. Imports ``config``, ``process``, ``wire``, ``handover`` and ``ingest``.
"""

__all__ = [  # noqa: RUF022 reading order
    "request_writer",
    "submissions",
    "tokens",
    "body_decompression",
    "large_requests",
    "http",
    "otlp_export",
    "otap",
    "otlp_grpc",
]

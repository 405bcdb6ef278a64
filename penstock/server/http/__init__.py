"""The HTTP API: slogd's routes and Penstock's own.

Read ``described_routes``, then ``routes``, ``admin_routes`` and ``monitoring_routes``, ``openapi`` (their
description), ``request_bodies``, ``body_limits``, ``application`` and ``docs_page``. Imports ``config``, ``process``,
``wire``, ``slogd`` and ``server``.
"""

__all__ = [
    "admin_routes",
    "application",
    "body_limits",
    "described_routes",
    "docs_page",
    "monitoring_routes",
    "openapi",
    "request_bodies",
    "routes",
]

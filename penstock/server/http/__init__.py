"""The HTTP API: slogd's routes and Penstock's own.

Read ``described_routes``, then ``routes``, ``admin_routes``, ``monitoring_routes`` and ``operator_routes``,
``openapi`` (their description), ``request_bodies``, ``body_limits``, ``application`` and ``docs_page``. Imports
``config``, ``files``, ``process``, ``wire``, ``slogd`` and ``server``.
"""

__all__ = [
    "admin_routes",
    "application",
    "body_limits",
    "described_routes",
    "docs_page",
    "monitoring_routes",
    "openapi",
    "operator_routes",
    "request_bodies",
    "routes",
]

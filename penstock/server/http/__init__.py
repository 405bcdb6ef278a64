"""The HTTP API: slogd's routes and what was added to them.

Read ``described_routes``, ``routes`` (every route is made here, in ``admin_routes`` or in ``server.api.monitoring``),
``openapi`` (what the document says of them), ``request_bodies``, ``body_limits``, ``application``, then ``docs_page``.
Imports ``config``, ``process``, ``wire``, ``slogd`` and ``server``.
"""

__all__ = [
    "admin_routes",
    "application",
    "body_limits",
    "described_routes",
    "docs_page",
    "openapi",
    "request_bodies",
    "routes",
]

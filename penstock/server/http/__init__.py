"""The HTTP API: slogd's routes and what was added to them.

Read ``routes`` (every route is made here, in ``admin_routes`` or in ``server.monitoring_api``), ``openapi`` (what the
document says of parameters and bodies), ``request_bodies``, ``body_limits``, then ``docs_page``. Imports ``config``,
``process``, ``slogd`` and ``server``.
"""

__all__ = ["admin_routes", "body_limits", "docs_page", "openapi", "request_bodies", "routes"]

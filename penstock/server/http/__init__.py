"""The HTTP API. Read ``routes`` (every route is made here or in ``admin_routes``), ``openapi``, ``docs_page``.

Imports ``server`` and ``slogd.json``.
"""

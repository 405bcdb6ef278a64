"""Everything that imports pyspark: the session, the data source ``penstock``, and the landing query.

Read ``session`` with ``package_zip``, ``class_archive`` (fast starts of the JVM) and ``worker_daemon``
(fast starts of the Python workers), ``versions`` (of Spark), ``views`` (the tables for readers), ``source/``,
``query/``, ``pipeline`` (all of it as one process) with ``stall_watch``, ``replay``.
Public names are imported on first use: pyspark is an optional dependency. Imports ``handover``, ``kafka.errors``,
``landing``, ``proof``, ``upkeep``, ``log``, ``client``, ``config``, ``java``, ``files`` and ``process``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.spark.session import build_session
    from penstock.spark.source.data_source import register
    from penstock.spark.views import register_views
else:
    __getattr__ = lazy_names(
        __name__, {"build_session": "session", "register": "source.data_source", "register_views": "views"}
    )

__all__ = ["build_session", "register", "register_views"]

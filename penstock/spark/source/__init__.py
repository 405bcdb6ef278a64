"""Spark's data source ``penstock``: topics as tables and streams, and a sink.

Read ``data_source``, ``options``, ``interfaces`` (where versions of PySpark differ), ``slices``, ``filter_bounds``,
``sink``; ``landing_ranges`` is the landing's own variant. Imports ``landing``, ``log``, ``process``, ``client`` and
``spark.versions``; it runs on executors, too.
"""

from penstock.spark.versions import check_version

# Order: before the modules below import names of pyspark that an unknown version may lack.
check_version()

__all__ = ["data_source", "options", "interfaces", "slices", "filter_bounds", "sink", "landing_ranges"]  # noqa: RUF022 reading order

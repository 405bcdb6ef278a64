"""Spark's data source ``penstock``: topics as tables and streams, and a sink.

Read ``data_source``, ``options``, ``interfaces`` (where versions of PySpark differ), ``slices``, ``filter_bounds``,
``sink``; ``landing_ranges`` and ``kafka_ranges`` are the landing's own variants. Imports ``landing``, ``log``,
``process``, ``client``, ``kafka.errors`` and ``spark.versions``; it runs on executors, too.
"""

from penstock.spark.versions import check_version

# Order: before the modules below import names of pyspark that an unknown version may lack.
check_version()

__all__ = ["data_source", "options", "interfaces", "slices", "filter_bounds", "sink", "landing_ranges", "kafka_ranges"]  # noqa: RUF022 reading order

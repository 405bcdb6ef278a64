"""Spark's data source ``penstock``: topics as tables and streams, and a sink.

Read ``data_source``, ``options``, ``slices``, ``filter_bounds``, ``sink``; ``type_admission`` is the landing's own
variant. Imports ``landing``, ``log`` and ``client``; it runs on executors, too.
"""

__all__ = ["data_source", "options", "slices", "filter_bounds", "sink", "type_admission"]  # noqa: RUF022 reading order
